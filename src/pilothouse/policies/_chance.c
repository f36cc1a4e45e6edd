/* The draw of chance.py in C: the twin of plain_draw, which is its oracle and says what it does. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* MT19937, the generator of Python's Random (Matsumoto and Nishimura 1998). */
#define WORDS 624
#define FAR 397

typedef struct {
    uint32_t words[WORDS];
    uint32_t used;
} State;

static void make_words(uint32_t *words)
{
    int i;
    for (i = 0; i < WORDS; i++) {
        uint32_t joined = (words[i] & 0x80000000u) | (words[(i + 1) % WORDS] & 0x7fffffffu);
        words[i] = words[(i + FAR) % WORDS] ^ (joined >> 1) ^ (joined & 1 ? 0x9908b0dfu : 0);
    }
}

static uint32_t next_word(State *state)
{
    uint32_t word;
    if (state->used >= WORDS) {
        make_words(state->words);
        state->used = 0;
    }
    word = state->words[state->used++];
    word ^= word >> 11;
    word ^= word << 7 & 0x9d2c5680u;
    word ^= word << 15 & 0xefc60000u;
    return word ^ word >> 18;
}

/* Swaps each place, from the last on, with one at or before it (Fisher and Yates). It is chosen by the highest bits of a word,
 * as many as the number of places has; a number that is too large is drawn again. */
static void shuffle(uint32_t *places, Py_ssize_t number, State *state)
{
    Py_ssize_t place;
    for (place = number - 1; place > 0; place--) {
        int shift = __builtin_clz((uint32_t)place + 1);
        uint32_t chosen, kept = places[place];
        do
            chosen = next_word(state) >> shift;
        while (chosen > (uint32_t)place);
        places[place] = places[chosen];
        places[chosen] = kept;
    }
}

static PyObject *draw(PyObject *self, PyObject *args)
{
    Py_buffer units, state;
    PyObject *drawn = NULL;
    Py_ssize_t place, number;
    long long free;
    uint32_t *places = NULL;
    if (!PyArg_ParseTuple(args, "y*Lw*", &units, &free, &state))
        return NULL;
    number = units.len / (Py_ssize_t)sizeof(long long);
    if (state.len != sizeof(State) || number > INT_MAX)
        PyErr_SetString(PyExc_ValueError, "the state of a Mersenne Twister has 625 words");
    else if ((places = PyMem_Malloc((size_t)(number + 1) * sizeof *places)) == NULL)
        PyErr_NoMemory();
    else if ((drawn = PyList_New(0)) != NULL) {
        for (place = 0; place < number; place++)
            places[place] = (uint32_t)place;
        shuffle(places, number, state.buf);
    }
    for (place = 0; drawn != NULL && place < number; place++)
        if (((const long long *)units.buf)[places[place]] <= free) {
            PyObject *found = PyLong_FromUnsignedLong(places[place]);
            if (found == NULL || PyList_Append(drawn, found))
                Py_CLEAR(drawn);
            Py_XDECREF(found);
        }
    PyMem_Free(places);
    PyBuffer_Release(&units);
    PyBuffer_Release(&state);
    return drawn;
}

static PyMethodDef methods[] = {
    {"draw", (PyCFunction)draw, METH_VARARGS, "The places of what fits, in random order."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_chance", "Random orders in C.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__chance(void)
{
    return PyModule_Create(&module);
}
