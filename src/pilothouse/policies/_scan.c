/* The two walks of EASY backfilling in C: the twins of plain_shadow and plain_candidate in scan.py, which are their
 * oracles. They read tuples where they lie: 5 ns an entry instead of 60.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

static int wrong_entry(void)
{
    PyErr_SetString(PyExc_TypeError, "a list of other entries than those of scan.py");
    return -1;
}

/* shadow(ends, missing) -> (date, left over); ends: [(date, number, units)] in order of their dates */
static PyObject *shadow(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t index, length;
    long long missing;
    double date = Py_HUGE_VAL;
    if (nargs != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "shadow takes a list of ends and a number");
        return NULL;
    }
    missing = PyLong_AsLongLong(args[1]);
    if (missing == -1 && PyErr_Occurred())
        return NULL;
    length = PyList_GET_SIZE(args[0]);
    for (index = 0; index < length; index++) {
        PyObject *end = PyList_GET_ITEM(args[0], index);
        double when;
        if (!PyTuple_Check(end) || PyTuple_GET_SIZE(end) != 3)
            return wrong_entry(), NULL;
        when = PyFloat_AsDouble(PyTuple_GET_ITEM(end, 0));
        if (missing <= 0 && when > date)
            break;
        missing -= PyLong_AsLongLong(PyTuple_GET_ITEM(end, 2));
        date = when;
    }
    if (PyErr_Occurred())
        return NULL;
    return Py_BuildValue("(dL)", date, -missing);
}

/* candidate(entries, index, free, extra, now, shadow) -> index of the first entry from there on that may start, or -1;
   entries: [(score, number, job, estimate, units)] */
static PyObject *candidate(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t index, length;
    long long free, extra;
    double now, shadow;
    if (nargs != 6 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "candidate takes a list of entries and five numbers");
        return NULL;
    }
    index = PyLong_AsSsize_t(args[1]);
    free = PyLong_AsLongLong(args[2]);
    extra = PyLong_AsLongLong(args[3]);
    now = PyFloat_AsDouble(args[4]);
    shadow = PyFloat_AsDouble(args[5]);
    if (PyErr_Occurred())
        return NULL;
    length = PyList_GET_SIZE(args[0]);
    for (; index < length; index++) {
        PyObject *entry = PyList_GET_ITEM(args[0], index);
        long long units;
        double estimate;
        if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 5)
            return wrong_entry(), NULL;
        units = PyLong_AsLongLong(PyTuple_GET_ITEM(entry, 4));
        if (units > free)
            continue;
        estimate = PyFloat_AsDouble(PyTuple_GET_ITEM(entry, 3));
        if (units <= extra || (now + estimate <= shadow && estimate < Py_HUGE_VAL))
            break;
    }
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromSsize_t(index < length ? index : -1);
}

static PyMethodDef methods[] = {
    {"shadow", (PyCFunction)(void (*)(void))shadow, METH_FASTCALL, "When enough units will be free."},
    {"candidate", (PyCFunction)(void (*)(void))candidate, METH_FASTCALL, "The next entry that may start."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_scan", "Walks in C.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scan(void)
{
    return PyModule_Create(&module);
}
