/* The shuffle of chance.py in C: the twin of plain_shuffle, which is its oracle and says what it does. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* shuffle(items, words, at, more): shuffles a list by the random words from `at` on; `more` returns the next ones. Returns the
 * words that are in use now, and how many of them are used up. */
static PyObject *shuffle(PyObject *self, PyObject *args)
{
    PyObject *items, *words, *more, *item;
    Py_ssize_t at, place, count;
    const unsigned char *bytes;
    if (!PyArg_ParseTuple(args, "O!O!nO", &PyList_Type, &items, &PyBytes_Type, &words, &at, &more))
        return NULL;
    Py_INCREF(words);
    bytes = (const unsigned char *)PyBytes_AS_STRING(words);
    count = PyBytes_GET_SIZE(words) / 4;
    for (place = PyList_GET_SIZE(items) - 1; place > 0; place--) {
        int bits = 64 - __builtin_clzll((unsigned long long)place + 1);
        unsigned long chosen;
        do {
            const unsigned char *word;
            if (at >= count) {
                Py_SETREF(words, PyObject_CallNoArgs(more));
                if (words == NULL || !PyBytes_Check(words) || PyBytes_GET_SIZE(words) < 4) {
                    if (words != NULL)
                        PyErr_SetString(PyExc_TypeError, "random words are bytes");
                    Py_XDECREF(words);
                    return NULL;
                }
                bytes = (const unsigned char *)PyBytes_AS_STRING(words);
                count = PyBytes_GET_SIZE(words) / 4;
                at = 0;
            }
            word = bytes + 4 * at++;
            chosen = (word[0] | (unsigned long)word[1] << 8 | (unsigned long)word[2] << 16 | (unsigned long)word[3] << 24)
                >> (32 - bits);
        } while (chosen > (unsigned long)place);
        item = PyList_GET_ITEM(items, place);
        PyList_SET_ITEM(items, place, PyList_GET_ITEM(items, (Py_ssize_t)chosen));
        PyList_SET_ITEM(items, (Py_ssize_t)chosen, item);
    }
    return Py_BuildValue("(Nn)", words, at);
}

static PyMethodDef methods[] = {
    {"shuffle", (PyCFunction)shuffle, METH_VARARGS, "Shuffles a list by random words."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_chance", "A shuffle in C.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__chance(void)
{
    return PyModule_Create(&module);
}
