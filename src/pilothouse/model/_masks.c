/* Searching and printing wide bitmasks in C: the twins of first_block, lowest_bits, bit_count and mask_text in masks.py, which are
 * their oracles. A mask is a Python int; its digits are read where they lie. One walk over the digits each, whatever the
 * number of ids: at 512 ids some 50 ns, against a microsecond of shifts that make new ints.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030C0000
#define DIGITS(o) (((PyLongObject *)(o))->ob_digit)
#define NEGATIVE(o) (Py_SIZE(o) < 0)
#define LENGTH(o) (Py_SIZE(o))
#else
#define DIGITS(o) (((PyLongObject *)(o))->long_value.ob_digit)
#define NEGATIVE(o) ((((PyLongObject *)(o))->long_value.lv_tag & 3) == 2)
#define LENGTH(o) ((((PyLongObject *)(o))->long_value.lv_tag & 3) == 1 ? 0 : (Py_ssize_t)(((PyLongObject *)(o))->long_value.lv_tag >> 3))
#endif

typedef struct {
    const digit *digits;
    Py_ssize_t length;
} Mask;

static int read_mask(PyObject *o, Mask *mask)
{
    if (!PyLong_Check(o) || NEGATIVE(o)) {
        PyErr_SetString(PyExc_ValueError, "a mask is an int, 0 or more");
        return 0;
    }
    mask->digits = DIGITS(o);
    mask->length = LENGTH(o);
    return 1;
}

/* The first place from `from` on whose bit is set (wanted = 0) or clear (wanted = all ones); -1: there is no set one. */
static Py_ssize_t find(const Mask *mask, Py_ssize_t from, digit inverted)
{
    Py_ssize_t index = from / PyLong_SHIFT;
    int shift = (int)(from % PyLong_SHIFT);
    for (; index < mask->length; index++, shift = 0) {
        digit rest = ((mask->digits[index] ^ inverted) & PyLong_MASK) >> shift;
        if (rest)
            return index * PyLong_SHIFT + shift + __builtin_ctz(rest);
    }
    return inverted ? mask->length * PyLong_SHIFT : -1;
}

/* The number of set bits. (Without -mpopcnt the builtin is a call for each digit.) */
static inline int count_bits(digit part)
{
    part -= part >> 1 & 0x55555555u;
    part = (part & 0x33333333u) + (part >> 2 & 0x33333333u);
    return (int)(((part + (part >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24);
}

static PyObject *bit_count(PyObject *self, PyObject *argument)
{
    Mask mask;
    Py_ssize_t index, count = 0;
    if (!read_mask(argument, &mask))
        return NULL;
    /* The units of a job are few among many, so most digits are 0. */
    for (index = 0; index + 4 <= mask.length; index += 4) {
        const digit *part = mask.digits + index;
        if (part[0] | part[1] | part[2] | part[3])
            count += count_bits(part[0]) + count_bits(part[1]) + count_bits(part[2]) + count_bits(part[3]);
    }
    for (; index < mask.length; index++)
        count += count_bits(mask.digits[index]);
    return PyLong_FromSsize_t(count);
}

static const digit SET = 0, CLEAR = (digit)-1;

/* An int of `length` digits, all clear; the caller sets its highest one. */
static PyObject *new_mask(Py_ssize_t length)
{
    PyLongObject *result = _PyLong_New(length);
    if (result != NULL)
        memset(DIGITS(result), 0, (size_t)length * sizeof(digit));
    return (PyObject *)result;
}

static void set_bits(digit *digits, Py_ssize_t first, Py_ssize_t last)
{
    Py_ssize_t from = first / PyLong_SHIFT, to = last / PyLong_SHIFT, index;
    digit low = (PyLong_MASK << (first % PyLong_SHIFT)) & PyLong_MASK;
    digit high = PyLong_MASK >> (PyLong_SHIFT - 1 - last % PyLong_SHIFT);
    if (from == to) {
        digits[from] |= low & high;
        return;
    }
    digits[from] |= low;
    for (index = from + 1; index < to; index++)
        digits[index] = PyLong_MASK;
    digits[to] |= high;
}

static int read_arguments(const char *name, PyObject *const *args, Py_ssize_t nargs, Mask *mask, Py_ssize_t *count)
{
    if (nargs != 2) {
        PyErr_Format(PyExc_TypeError, "%s takes a mask and a count", name);
        return 0;
    }
    if (!read_mask(args[0], mask))
        return 0;
    *count = PyLong_AsSsize_t(args[1]);
    return *count != -1 || !PyErr_Occurred();
}

static PyObject *first_block(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Mask mask;
    Py_ssize_t count, first, end = 0;
    if (!read_arguments("first_block", args, nargs, &mask, &count))
        return NULL;
    while (count > 0 && (first = find(&mask, end, SET)) >= 0) {
        end = find(&mask, first, CLEAR);
        if (end - first >= count) {
            Py_ssize_t last = first + count - 1;
            PyObject *block;
            if (last < PyLong_SHIFT)
                return PyLong_FromLong(((1L << count) - 1) << first);
            block = new_mask(last / PyLong_SHIFT + 1);
            if (block != NULL)
                set_bits(DIGITS(block), first, last);
            return block;
        }
    }
    return PyLong_FromLong(0);
}

static PyObject *lowest_bits(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Mask mask;
    Py_ssize_t count, index;
    digit part = 0;
    PyObject *lowest;
    if (!read_arguments("lowest_bits", args, nargs, &mask, &count))
        return NULL;
    if (count <= 0)
        return PyLong_FromLong(0);
    for (index = 0; index < mask.length; index++) {
        int here = count_bits(mask.digits[index]);
        if (here >= count)
            break;
        count -= here;
    }
    if (index == mask.length)
        return Py_NewRef(args[0]);
    /* The last digit is cut behind its count-th bit. */
    for (part = mask.digits[index]; count > 0; count--)
        part &= part - 1;
    part ^= mask.digits[index];
    if (index == 0)
        return PyLong_FromLong((long)part);
    lowest = new_mask(index + 1);
    if (lowest != NULL) {
        memcpy(DIGITS(lowest), mask.digits, (size_t)index * sizeof(digit));
        DIGITS(lowest)[index] = part;
    }
    return lowest;
}

static char *put_number(char *to, Py_ssize_t number)
{
    char text[24];
    int length = 0;
    do {
        text[length++] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    while (length)
        *to++ = text[--length];
    return to;
}

static PyObject *mask_text(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Mask mask;
    Py_ssize_t first, end = 0, size = 256, used = 0, gap;
    const char *separator;
    char fixed[256], *buffer = fixed, *to;
    PyObject *text;
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "mask_text takes a mask and a separator");
        return NULL;
    }
    if (!read_mask(args[0], &mask) || (separator = PyUnicode_AsUTF8AndSize(args[1], &gap)) == NULL)
        return NULL;
    while ((first = find(&mask, end, SET)) >= 0) {
        end = find(&mask, first, CLEAR);
        if (size - used < 48 + gap) {
            char *larger = PyMem_Malloc((size_t)(2 * size + gap));
            if (larger == NULL) {
                if (buffer != fixed)
                    PyMem_Free(buffer);
                return PyErr_NoMemory();
            }
            memcpy(larger, buffer, (size_t)used);
            if (buffer != fixed)
                PyMem_Free(buffer);
            buffer = larger;
            size = 2 * size + gap;
        }
        to = buffer + used;
        if (used) {
            memcpy(to, separator, (size_t)gap);
            to += gap;
        }
        to = put_number(to, first);
        if (end - first > 1) {
            *to++ = '-';
            to = put_number(to, end - 1);
        }
        used = to - buffer;
    }
    text = PyUnicode_FromStringAndSize(buffer, used);
    if (buffer != fixed)
        PyMem_Free(buffer);
    return text;
}

static PyMethodDef methods[] = {
    {"first_block", (PyCFunction)(void (*)(void))first_block, METH_FASTCALL, "The lowest block of neighbouring bits."},
    {"bit_count", (PyCFunction)bit_count, METH_O, "The number of set bits."},
    {"lowest_bits", (PyCFunction)(void (*)(void))lowest_bits, METH_FASTCALL, "The lowest bits of a mask."},
    {"mask_text", (PyCFunction)(void (*)(void))mask_text, METH_FASTCALL, "A mask as ranges."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_masks", "Bitmasks in C.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__masks(void)
{
    return PyModule_Create(&module);
}
