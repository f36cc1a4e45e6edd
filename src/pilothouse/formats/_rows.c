/* Rows of jobs.csv in C: the twin of plain_row in jobs_csv.py, which is its oracle.
 *
 * row(local, workload, profile, submitted, units, walltime, success, state, started, execution, ended, allocated, energy,
 *     metadata) -> str
 *
 * What takes the time are the ten numbers with six decimals. Almost all are below 2^53 / 10^6: such a one is multiplied by
 * 10^6 and rounded, and a fused multiply-add tells exactly how far that is from the true product. If it is nearer than a
 * half, these are the digits; else (a tie, or beyond) Python's own conversion decides.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

#define MOST_TEXT 330     /* of any number with six decimals */
#define TEXTS 6

static char *put_digits(char *to, unsigned long long number, int least)
{
    char text[24];
    int length = 0;
    do {
        text[length++] = (char)('0' + number % 10);
        number /= 10;
    } while (number || length < least);
    while (length)
        *to++ = text[--length];
    return to;
}

/* The number with six decimals, or NULL with an exception set. */
static char *put_fixed(char *to, double value)
{
    double size = fabs(value), scaled = size * 1e6, whole = nearbyint(scaled);
    if (scaled < 9007199254740992.0 && fabs(fma(size, 1e6, -whole)) < 0.5) {
        unsigned long long all = (unsigned long long)whole;
        if (signbit(value))
            *to++ = '-';
        to = put_digits(to, all / 1000000, 1);
        *to++ = '.';
        return put_digits(to, all % 1000000, 6);
    }
    else {
        char *text = PyOS_double_to_string(value, 'f', 6, 0, NULL);
        size_t length;
        if (text == NULL)
            return NULL;
        length = strlen(text);
        memcpy(to, text, length);
        PyMem_Free(text);
        return to + length;
    }
}

static PyObject *row(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const int text_at[TEXTS] = {0, 1, 2, 7, 11, 13};
    const char *texts[TEXTS];
    Py_ssize_t lengths[TEXTS], room = 10 * (MOST_TEXT + 1) + 32;
    double submitted, walltime, started, execution, ended, turnaround, energy;
    long long units;
    int success, i;
    char fixed[8192], *buffer = fixed, *to;
    PyObject *result = NULL;
    if (nargs != 14) {
        PyErr_SetString(PyExc_TypeError, "row takes 14 arguments");
        return NULL;
    }
    for (i = 0; i < TEXTS; i++) {
        texts[i] = PyUnicode_AsUTF8AndSize(args[text_at[i]], &lengths[i]);
        if (texts[i] == NULL)
            return NULL;
        room += lengths[i];
    }
    submitted = PyFloat_AsDouble(args[3]);
    units = PyLong_AsLongLong(args[4]);
    walltime = PyFloat_AsDouble(args[5]);
    success = PyObject_IsTrue(args[6]);
    started = PyFloat_AsDouble(args[8]);
    execution = PyFloat_AsDouble(args[9]);
    ended = PyFloat_AsDouble(args[10]);
    energy = PyFloat_AsDouble(args[12]);
    if (PyErr_Occurred())
        return NULL;
    turnaround = ended - submitted;
    if (room > (Py_ssize_t)sizeof fixed && (buffer = PyMem_Malloc((size_t)room)) == NULL)
        return PyErr_NoMemory();
    to = buffer;
#define TEXT(i) (memcpy(to, texts[i], (size_t)lengths[i]), to += lengths[i], *to++ = ',')
#define FIXED(value) do { if ((to = put_fixed(to, value)) == NULL) goto done; *to++ = ','; } while (0)
    TEXT(0);
    TEXT(1);
    TEXT(2);
    FIXED(submitted);
    if (units < 0)
        *to++ = '-';
    to = put_digits(to, units < 0 ? 0ULL - (unsigned long long)units : (unsigned long long)units, 1);
    *to++ = ',';
    FIXED(walltime);
    *to++ = success ? '1' : '0';
    *to++ = ',';
    TEXT(3);
    FIXED(started);
    FIXED(execution);
    FIXED(ended);
    FIXED(started - submitted);
    FIXED(turnaround);
    FIXED(execution ? turnaround / execution : Py_HUGE_VAL);
    TEXT(4);
    FIXED(energy);
    memcpy(to, texts[5], (size_t)lengths[5]);
    to += lengths[5];
    result = PyUnicode_DecodeUTF8(buffer, to - buffer, NULL);
done:
    if (buffer != fixed)
        PyMem_Free(buffer);
    return result;
}

static PyMethodDef methods[] = {
    {"row", (PyCFunction)(void (*)(void))row, METH_FASTCALL, "A row of jobs.csv."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_rows", "Rows in C.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rows(void)
{
    return PyModule_Create(&module);
}
