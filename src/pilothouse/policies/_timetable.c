/* Free units over time, for conservative.py, which has the same class in Python and says what it does. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

typedef struct {
    PyObject_HEAD
    double *dates;
    long long *free;
    Py_ssize_t count, room;
} Timetable;

static int grow(Timetable *self)
{
    Py_ssize_t room = self->room ? 2 * self->room : 64;
    double *dates = PyMem_Realloc(self->dates, (size_t)room * sizeof *dates);
    long long *free;
    if (dates == NULL)
        return PyErr_NoMemory(), -1;
    self->dates = dates;
    if ((free = PyMem_Realloc(self->free, (size_t)room * sizeof *free)) == NULL)
        return PyErr_NoMemory(), -1;
    self->free = free;
    self->room = room;
    return 0;
}

/* The first step that does not begin before the date. */
static Py_ssize_t step_from(const Timetable *self, double date)
{
    Py_ssize_t low = 0, high = self->count;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (self->dates[middle] < date)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The step that begins at the date, made if need be; -1: no memory. */
static Py_ssize_t step_at(Timetable *self, double date)
{
    Py_ssize_t index, rest;
    long long free;
    if (date == Py_HUGE_VAL)
        return self->count;
    index = step_from(self, date);
    if (index < self->count && self->dates[index] == date)
        return index;
    if (self->count == self->room && grow(self))
        return -1;
    free = self->free[index ? index - 1 : self->count - 1];
    rest = self->count - index;
    memmove(self->dates + index + 1, self->dates + index, (size_t)rest * sizeof *self->dates);
    memmove(self->free + index + 1, self->free + index, (size_t)rest * sizeof *self->free);
    self->dates[index] = date;
    self->free[index] = free;
    self->count++;
    return index;
}

static int take(Timetable *self, double start, double end, long long units)
{
    Py_ssize_t first = step_at(self, start), last;
    if (first < 0 || (last = step_at(self, end)) < 0)
        return -1;
    for (; first < last; first++)
        self->free[first] -= units;
    return 0;
}

static PyObject *timetable_take(Timetable *self, PyObject *args)
{
    double start, end;
    long long units;
    if (!PyArg_ParseTuple(args, "ddL", &start, &end, &units) || take(self, start, end, units))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *timetable_give(Timetable *self, PyObject *args)
{
    double date;
    long long units;
    if (!PyArg_ParseTuple(args, "dL", &date, &units) || take(self, date, Py_HUGE_VAL, -units))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *timetable_earliest(Timetable *self, PyObject *args)
{
    long long units;
    double duration;
    Py_ssize_t index = 0;
    if (!PyArg_ParseTuple(args, "Ld", &units, &duration))
        return NULL;
    while (index < self->count) {
        Py_ssize_t blocked;
        double end;
        if (self->free[index] < units) {
            index++;
            continue;
        }
        end = self->dates[index] + duration;
        for (blocked = index + 1; blocked < self->count && self->dates[blocked] < end; blocked++)
            if (self->free[blocked] < units)
                break;
        if (blocked == self->count || self->dates[blocked] >= end)
            return PyFloat_FromDouble(self->dates[index]);
        index = blocked + 1;
    }
    return PyFloat_FromDouble(Py_HUGE_VAL);
}

static PyObject *timetable_forget_before(Timetable *self, PyObject *date)
{
    double now = PyFloat_AsDouble(date);
    Py_ssize_t index;
    if (now == -1.0 && PyErr_Occurred())
        return NULL;
    index = step_from(self, now);
    if (index == self->count || self->dates[index] != now)
        index--;
    if (index > 0) {
        self->count -= index;
        memmove(self->dates, self->dates + index, (size_t)self->count * sizeof *self->dates);
        memmove(self->free, self->free + index, (size_t)self->count * sizeof *self->free);
    }
    if (self->dates[0] < now)
        self->dates[0] = now;
    Py_RETURN_NONE;
}

static int timetable_init(Timetable *self, PyObject *args, PyObject *named)
{
    double now;
    long long free;
    if (!PyArg_ParseTuple(args, "dL", &now, &free) || (!self->room && grow(self)))
        return -1;
    self->dates[0] = now;
    self->free[0] = free;
    self->count = 1;
    return 0;
}

static void timetable_dealloc(Timetable *self)
{
    PyMem_Free(self->dates);
    PyMem_Free(self->free);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef timetable_methods[] = {
    {"give", (PyCFunction)timetable_give, METH_VARARGS, "Units are free from that date on."},
    {"take", (PyCFunction)timetable_take, METH_VARARGS, "Takes units from start to end."},
    {"earliest", (PyCFunction)timetable_earliest, METH_VARARGS, "The first date from which units are free for a duration."},
    {"forget_before", (PyCFunction)timetable_forget_before, METH_O, "Drops the steps before a date."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject TimetableType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pilothouse.policies._timetable.Timetable",
    .tp_basicsize = sizeof(Timetable),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Free units over time.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)timetable_init,
    .tp_dealloc = (destructor)timetable_dealloc,
    .tp_methods = timetable_methods,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_timetable", "The timetable in C.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__timetable(void)
{
    PyObject *self;
    if (PyType_Ready(&TimetableType) < 0)
        return NULL;
    if ((self = PyModule_Create(&module)) != NULL && PyModule_AddObjectRef(self, "Timetable", (PyObject *)&TimetableType) < 0)
        Py_CLEAR(self);
    return self;
}
