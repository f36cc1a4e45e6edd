/* The agenda of a simulated world in C: the twin of Agenda in agenda.py, which is its oracle and says what each method does. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <structmember.h>

typedef struct {
    double date;
    long long number;
    PyObject *callback, *argument;
} Entry;

typedef struct {
    PyObject_HEAD
    PyObject *now, *cancelled;
    double date;        /* the same as now */
    long long number;
    Entry *heap;
    Py_ssize_t count, room;
} Agenda;

static int before(const Entry *one, const Entry *other)
{
    return one->date < other->date || (one->date == other->date && one->number < other->number);
}

static int push(Agenda *self, double date, long long number, PyObject *callback, PyObject *argument)
{
    Entry entry = {date, number, Py_NewRef(callback), Py_NewRef(argument)};
    Py_ssize_t place;
    if (self->count == self->room) {
        Py_ssize_t room = self->room ? 2 * self->room : 64;
        Entry *heap = PyMem_Realloc(self->heap, (size_t)room * sizeof(Entry));
        if (heap == NULL) {
            Py_DECREF(callback);
            Py_DECREF(argument);
            PyErr_NoMemory();
            return -1;
        }
        self->heap = heap;
        self->room = room;
    }
    for (place = self->count++; place > 0; place = (place - 1) / 2) {
        Entry *parent = &self->heap[(place - 1) / 2];
        if (!before(&entry, parent))
            break;
        self->heap[place] = *parent;
    }
    self->heap[place] = entry;
    return 0;
}

/* The first entry, whose references the caller takes over. There must be one. */
static Entry pop_first(Agenda *self)
{
    Entry first = self->heap[0], last = self->heap[--self->count];
    Py_ssize_t place = 0, child;
    while ((child = 2 * place + 1) < self->count) {
        if (child + 1 < self->count && before(&self->heap[child + 1], &self->heap[child]))
            child++;
        if (!before(&self->heap[child], &last))
            break;
        self->heap[place] = self->heap[child];
        place = child;
    }
    self->heap[place] = last;
    return first;
}

static void let_go(Entry *entry)
{
    Py_DECREF(entry->callback);
    Py_DECREF(entry->argument);
}

static int set_now(Agenda *self, double date)
{
    PyObject *now;
    if (date == self->date)
        return 0;
    if ((now = PyFloat_FromDouble(date)) == NULL)
        return -1;
    self->date = date;
    Py_SETREF(self->now, now);
    return 0;
}

/* Whether the entry of this number was cancelled; asks once. -1: an exception. */
static int was_cancelled(Agenda *self, long long number)
{
    PyObject *object;
    int found;
    if (PySet_GET_SIZE(self->cancelled) == 0)
        return 0;
    if ((object = PyLong_FromLongLong(number)) == NULL)
        return -1;
    found = PySet_Discard(self->cancelled, object);
    Py_DECREF(object);
    return found;
}

static int as_double(PyObject *object, double *to)
{
    *to = PyFloat_AsDouble(object);
    return *to == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* ---- methods */

/* (number, callback[, argument]) as most methods take them */
static int arguments(PyObject *const *args, Py_ssize_t nargs, double *value, PyObject **argument)
{
    if (nargs < 2 || nargs > 3) {
        PyErr_SetString(PyExc_TypeError, "a number, a callback and perhaps an argument are expected");
        return -1;
    }
    *argument = nargs == 3 ? args[2] : Py_None;
    return as_double(args[0], value);
}

static PyObject *enter(Agenda *self, double date, PyObject *callback, PyObject *argument)
{
    if (push(self, date, ++self->number, callback, argument))
        return NULL;
    return PyLong_FromLongLong(self->number);
}

static PyObject *agenda_at(Agenda *self, PyObject *const *args, Py_ssize_t nargs)
{
    double date;
    PyObject *argument;
    return arguments(args, nargs, &date, &argument) ? NULL : enter(self, date, args[1], argument);
}

static PyObject *agenda_after(Agenda *self, PyObject *const *args, Py_ssize_t nargs)
{
    double seconds;
    PyObject *argument;
    return arguments(args, nargs, &seconds, &argument) ? NULL : enter(self, self->date + seconds, args[1], argument);
}

static PyObject *agenda_first_at(Agenda *self, PyObject *const *args, Py_ssize_t nargs)
{
    double date;
    PyObject *argument;
    if (arguments(args, nargs, &date, &argument) || push(self, date, 0, args[1], argument))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *agenda_place(Agenda *self, PyObject *nothing)
{
    return PyLong_FromLongLong(++self->number);
}

static PyObject *agenda_work(Agenda *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"amount", "rate", "callback", "argument", "place", NULL};
    double amount, rate;
    PyObject *callback, *argument = Py_None, *place = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "ddO|O$O", names, &amount, &rate, &callback, &argument, &place))
        return NULL;
    if (rate == 0.0) {
        PyErr_SetString(PyExc_ZeroDivisionError, "float division by zero");
        return NULL;
    }
    return enter(self, self->date + amount / rate, callback, argument);
}

static PyObject *agenda_cancel(Agenda *self, PyObject *number)
{
    if (PySet_Add(self->cancelled, number))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *agenda_was_cancelled(Agenda *self, PyObject *number)
{
    int found = PySet_Discard(self->cancelled, number);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

/* The date of the first entry that was not cancelled, those before it taken out; -1: an exception. */
static int next_date(Agenda *self, double *date)
{
    while (self->count) {
        int cancelled = was_cancelled(self, self->heap[0].number);
        Entry entry;
        if (cancelled < 0)
            return -1;
        if (!cancelled) {
            *date = self->heap[0].date;
            return 0;
        }
        entry = pop_first(self);
        let_go(&entry);
    }
    *date = Py_HUGE_VAL;
    return 0;
}

static PyObject *agenda_next_date(Agenda *self, PyObject *nothing)
{
    double date;
    return next_date(self, &date) ? NULL : PyFloat_FromDouble(date);
}

static PyObject *agenda_pop(Agenda *self, PyObject *nothing)
{
    double date;
    Entry entry;
    if (next_date(self, &date))
        return NULL;
    if (self->count == 0) {
        PyErr_SetString(PyExc_IndexError, "nothing is on the agenda");
        return NULL;
    }
    if (date > self->date && set_now(self, date))
        return NULL;
    entry = pop_first(self);
    return Py_BuildValue("(dLNN)", entry.date, entry.number, entry.callback, entry.argument);
}

/* Takes the first entry out and runs it. */
static int run_first(Agenda *self, double now)
{
    Entry entry = pop_first(self);
    PyObject *result = set_now(self, now) ? NULL : PyObject_CallOneArg(entry.callback, entry.argument);
    let_go(&entry);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static PyObject *agenda_run_next(Agenda *self, PyObject *argument)
{
    double date, until;
    if (as_double(argument, &until) || next_date(self, &date))
        return NULL;
    if (self->count == 0)
        return PyFloat_FromDouble(Py_HUGE_VAL);
    if (run_first(self, date))
        return NULL;
    if (date > until)
        until = date;
    for (;;) {
        if (next_date(self, &date))
            return NULL;
        if (self->count == 0 || date > until)
            break;
        if (run_first(self, date))
            return NULL;
    }
    return set_now(self, until) ? NULL : Py_NewRef(self->now);
}

static PyObject *agenda_run_until(Agenda *self, PyObject *argument)
{
    double date, until;
    if (as_double(argument, &until))
        return NULL;
    for (;;) {
        if (next_date(self, &date))
            return NULL;
        if (self->count == 0 || date > until)
            break;
        if (run_first(self, date > self->date ? date : self->date))
            return NULL;
    }
    if (until > self->date && set_now(self, until))
        return NULL;
    Py_RETURN_NONE;
}

/* ---- the type */

static int agenda_init(Agenda *self, PyObject *args, PyObject *keywords)
{
    if (!PyArg_ParseTuple(args, "") || (keywords != NULL && PyDict_GET_SIZE(keywords)))
        return -1;
    Py_XSETREF(self->now, PyFloat_FromDouble(0.0));
    Py_XSETREF(self->cancelled, PySet_New(NULL));
    return self->now == NULL || self->cancelled == NULL ? -1 : 0;
}

static int agenda_traverse(Agenda *self, visitproc visit, void *arg)
{
    Py_ssize_t index;
    for (index = 0; index < self->count; index++) {
        Py_VISIT(self->heap[index].callback);
        Py_VISIT(self->heap[index].argument);
    }
    return 0;
}

static int agenda_clear(Agenda *self)
{
    while (self->count) {
        Entry entry = self->heap[--self->count];
        let_go(&entry);
    }
    return 0;
}

static void agenda_dealloc(Agenda *self)
{
    PyObject_GC_UnTrack(self);
    agenda_clear(self);
    PyMem_Free(self->heap);
    Py_XDECREF(self->now);
    Py_XDECREF(self->cancelled);
    Py_TYPE(self)->tp_free(self);
}

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL
static PyMethodDef agenda_methods[] = {
    {"at", FAST(agenda_at), "Enters a callback."},
    {"after", FAST(agenda_after), "Enters a callback that many seconds from now."},
    {"first_at", FAST(agenda_first_at), "Enters a callback before everything else of its date."},
    {"place", (PyCFunction)agenda_place, METH_NOARGS, "A place in the order of entry."},
    {"work", (PyCFunction)(void (*)(void))agenda_work, METH_VARARGS | METH_KEYWORDS, "Enters a callback for work done."},
    {"cancel", (PyCFunction)agenda_cancel, METH_O, "Takes back an entry."},
    {"was_cancelled", (PyCFunction)agenda_was_cancelled, METH_O, "Whether an entry was taken back."},
    {"next_date", (PyCFunction)agenda_next_date, METH_NOARGS, "When the next entry is due."},
    {"pop", (PyCFunction)agenda_pop, METH_NOARGS, "Takes the next entry out."},
    {"run_next", (PyCFunction)agenda_run_next, METH_O, "Runs everything of the next date."},
    {"run_until", (PyCFunction)agenda_run_until, METH_O, "Runs everything up to a date."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef agenda_members[] = {
    {"now", T_OBJECT_EX, offsetof(Agenda, now), READONLY, "The date of the last entry that was run."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject AgendaType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pilothouse.worlds.simulated.physics._agenda.Agenda",
    .tp_basicsize = sizeof(Agenda),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "What will happen when.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)agenda_init,
    .tp_dealloc = (destructor)agenda_dealloc,
    .tp_traverse = (traverseproc)agenda_traverse,
    .tp_clear = (inquiry)agenda_clear,
    .tp_methods = agenda_methods,
    .tp_members = agenda_members,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_agenda", "The agenda in C.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__agenda(void)
{
    PyObject *self;
    if (PyType_Ready(&AgendaType) < 0 || (self = PyModule_Create(&module)) == NULL)
        return NULL;
    if (PyModule_AddObjectRef(self, "Agenda", (PyObject *)&AgendaType) < 0)
        Py_CLEAR(self);
    return self;
}
