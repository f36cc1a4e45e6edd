/* Searching and printing wide bitmasks in C: the twins of first_block, lowest_bits, bit_count, mask_text and FreeUnits in
 * masks.py, which are their oracles. A mask is a Python int; its digits are read where they lie. One walk over the digits
 * each, whatever the number of ids: at 512 ids some 50 ns, against a microsecond of shifts that make new ints.
 *
 * FreeUnits keeps the digits of a mask that changes, and a tree over them that knows where the long blocks are.
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

/* The units of a job are few among many, so most digits are 0: these are skipped so many at a time. */
#define STRIDE ((Py_ssize_t)(32 / sizeof(digit)))

static inline int is_empty(const digit *digits)
{
    unsigned long long words[4];
    memcpy(words, digits, sizeof words);
    return !(words[0] | words[1] | words[2] | words[3]);
}

/* The first digit from `index` on that is not 0, else `length`. */
static inline Py_ssize_t next_digit(const digit *digits, Py_ssize_t index, Py_ssize_t length)
{
    while (index + STRIDE <= length && is_empty(digits + index))
        index += STRIDE;
    while (index < length && !digits[index])
        index++;
    return index;
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
        if (!inverted)
            index = next_digit(mask->digits, index + 1, mask->length) - 1;
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
    Py_ssize_t index, end, count = 0;
    if (!read_mask(argument, &mask))
        return NULL;
    for (index = 0; (index = next_digit(mask.digits, index, mask.length)) < mask.length;)
        for (end = index + STRIDE < mask.length ? index + STRIDE : mask.length; index < end; index++)
            count += count_bits(mask.digits[index]);
    return PyLong_FromSsize_t(count);
}

static const digit SET = 0, CLEAR = (digit)-1;

/* An int of `length` digits (two or more), all clear; the caller sets its highest one. */
static PyObject *new_mask(Py_ssize_t length)
{
    size_t size = (size_t)length * sizeof(digit);
#if PY_VERSION_HEX < 0x030E0000
    PyObject *result = (PyObject *)_PyLong_New(length);
    if (result != NULL)
        memset(DIGITS(result), 0, size);
#else
    /* _PyLong_New is deprecated. The writer drops leading zeros: the highest digit is cleared when it has finished. */
    PyObject *result;
    void *digits;
    PyLongWriter *writer = PyLongWriter_Create(0, length, &digits);
    if (writer == NULL)
        return NULL;
    memset(digits, 0, size);
    ((digit *)digits)[length - 1] = 1;
    result = PyLongWriter_Finish(writer);
    if (result != NULL)
        DIGITS(result)[length - 1] = 0;
#endif
    return result;
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

/* The block of bits from first to last. */
static PyObject *block_of(Py_ssize_t first, Py_ssize_t last)
{
    PyObject *block;
    if (last < PyLong_SHIFT)
        return PyLong_FromLong(((1L << (last - first + 1)) - 1) << first);
    block = new_mask(last / PyLong_SHIFT + 1);
    if (block != NULL)
        set_bits(DIGITS(block), first, last);
    return block;
}

static PyObject *first_block(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Mask mask;
    Py_ssize_t count, first, end = 0;
    if (!read_arguments("first_block", args, nargs, &mask, &count))
        return NULL;
    while (count > 0 && (first = find(&mask, end, SET)) >= 0) {
        end = find(&mask, first, CLEAR);
        if (end - first >= count)
            return block_of(first, first + count - 1);
    }
    return PyLong_FromLong(0);
}

/* The lowest bits of a mask; NULL without an exception: it has no more than these. */
static PyObject *cut_behind(const Mask *mask, Py_ssize_t count)
{
    Py_ssize_t index;
    digit part;
    PyObject *lowest;
    for (index = 0; (index = next_digit(mask->digits, index, mask->length)) < mask->length; index++) {
        int here = count_bits(mask->digits[index]);
        if (here >= count)
            break;
        count -= here;
    }
    if (index == mask->length)
        return NULL;
    /* The last digit is cut behind its count-th bit. */
    for (part = mask->digits[index]; count > 0; count--)
        part &= part - 1;
    part ^= mask->digits[index];
    if (index == 0)
        return PyLong_FromLong((long)part);
    lowest = new_mask(index + 1);
    if (lowest != NULL) {
        memcpy(DIGITS(lowest), mask->digits, (size_t)index * sizeof(digit));
        DIGITS(lowest)[index] = part;
    }
    return lowest;
}

static PyObject *lowest_bits(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Mask mask;
    Py_ssize_t count;
    PyObject *lowest;
    if (!read_arguments("lowest_bits", args, nargs, &mask, &count))
        return NULL;
    if (count <= 0)
        return PyLong_FromLong(0);
    lowest = cut_behind(&mask, count);
    return lowest != NULL || PyErr_Occurred() ? lowest : Py_NewRef(args[0]);
}

static int read_shift(PyObject *o, Py_ssize_t *shift)
{
    *shift = PyLong_AsSsize_t(o);
    if (*shift < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "a shift is 0 or more");
    return *shift >= 0;
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
    Py_ssize_t first, end = 0, size = 256, used = 0, gap, shift = 0;
    const char *separator;
    char fixed[256], *buffer = fixed, *to;
    PyObject *text;
    if (nargs != 2 && nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "mask_text takes a mask, a separator and a shift");
        return NULL;
    }
    if (nargs == 3 && !read_shift(args[2], &shift))
        return NULL;
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
        to = put_number(to, first + shift);
        if (end - first > 1) {
            *to++ = '-';
            to = put_number(to, end - 1 + shift);
        }
        used = to - buffer;
    }
    text = PyUnicode_FromStringAndSize(buffer, used);
    if (buffer != fixed)
        PyMem_Free(buffer);
    return text;
}

/* ---- free units */

/* Free units in a row: at the lower end of a part, at its upper end, and the most anywhere in it. */
typedef struct {
    int low, high, most;
} Rows;

typedef struct {
    PyObject_HEAD
    digit *digits;
    Rows *parts;            /* a binary tree: the halves of part i are 2i and 2i+1; the digits are the parts from `leaves` on */
    Py_ssize_t leaves;      /* a power of two */
    Py_ssize_t lowest;      /* no unit of a digit below is free */
    PyObject *mask;         /* made when it is asked for; NULL: not since the last change */
} FreeUnits;

static Rows rows_in(digit part)
{
    unsigned int taken = ~(unsigned int)part & PyLong_MASK, rest = part;
    Rows rows = {PyLong_SHIFT, PyLong_SHIFT, 0};
    if (taken) {
        rows.low = __builtin_ctz(taken);
        rows.high = __builtin_clz(taken << (32 - PyLong_SHIFT));
    }
    for (; rest; rest &= rest << 1)
        rows.most++;
    return rows;
}

/* Two neighbours of the same width. */
static Rows join(const Rows *lower, const Rows *upper, int width)
{
    Rows rows = {lower->low, upper->high, lower->high + upper->low};
    if (rows.low == width)
        rows.low += upper->low;
    if (rows.high == width)
        rows.high += lower->high;
    if (rows.most < lower->most)
        rows.most = lower->most;
    if (rows.most < upper->most)
        rows.most = upper->most;
    return rows;
}

/* The digits from first to last have changed. */
static void refresh(FreeUnits *self, Py_ssize_t first, Py_ssize_t last)
{
    Py_ssize_t index;
    int width = PyLong_SHIFT;
    for (index = first; index <= last; index++)
        self->parts[self->leaves + index] = rows_in(self->digits[index]);
    first += self->leaves;
    last += self->leaves;
    for (; first > 1; width *= 2) {
        int same = 1;
        first /= 2;
        last /= 2;
        for (index = first; index <= last; index++) {
            Rows *part = self->parts + index, rows = join(self->parts + 2 * index, self->parts + 2 * index + 1, width);
            same &= part->low == rows.low && part->high == rows.high && part->most == rows.most;
            *part = rows;
        }
        if (same)
            return;
    }
}

/* Makes room for so many digits, and begins with these. */
static int begin_with(FreeUnits *self, const digit *first, Py_ssize_t count, Py_ssize_t room)
{
    Py_ssize_t leaves = 1;
    digit *digits;
    Rows *parts;
    while (leaves < room)
        leaves *= 2;
    digits = PyMem_Calloc((size_t)leaves, sizeof *digits);
    parts = PyMem_Calloc((size_t)leaves * 2, sizeof *parts);
    if (digits == NULL || parts == NULL) {
        PyMem_Free(digits);
        PyMem_Free(parts);
        return PyErr_NoMemory(), -1;
    }
    memcpy(digits, first, (size_t)count * sizeof *digits);
    PyMem_Free(self->digits);
    PyMem_Free(self->parts);
    self->digits = digits;
    self->parts = parts;
    self->leaves = leaves;
    self->lowest = 0;
    refresh(self, 0, leaves - 1);
    return 0;
}

/* Digits that change together are not further from each other than this. */
#define NEAR 8

/* Adds the units of the mask, whose first digit is number `base`, or takes them away. Returns how many were not free, or were. */
static Py_ssize_t change(FreeUnits *self, const Mask *mask, Py_ssize_t base, int adds)
{
    const digit *digits = mask->digits;
    Py_ssize_t length = mask->length < self->leaves - base ? mask->length : self->leaves - base, index = 0, count = 0;
    Py_CLEAR(self->mask);
    for (;;) {
        Py_ssize_t first, last;
        if ((index = next_digit(digits, index, length)) >= length)
            return count;
        if (adds && base + index < self->lowest)
            self->lowest = base + index;
        for (first = last = index; index < length && index <= last + NEAR; index++) {
            digit now = self->digits[base + index], part = digits[index] & (adds ? ~now : now);
            if (digits[index])
                last = index;
            if (part) {
                count += count_bits(part);
                self->digits[base + index] = now ^ part;
            }
        }
        refresh(self, base + first, base + last);
    }
}

/* The first unit of the lowest block; -1: there is none. */
static Py_ssize_t find_block(const FreeUnits *self, Py_ssize_t count)
{
    Py_ssize_t part = 1, first = 0, length = 1, width = self->leaves * PyLong_SHIFT;
    digit rest;
    if (self->parts[1].most < count)
        return -1;
    while (part < self->leaves) {
        const Rows *lower = self->parts + 2 * part, *upper = lower + 1;
        width /= 2;
        part *= 2;
        if (lower->most >= count)
            continue;
        first += width;
        if (lower->high + upper->low >= count)
            return first - lower->high;
        part++;
    }
    for (rest = self->digits[part - self->leaves]; length < count;) {
        Py_ssize_t step = length < count - length ? length : count - length;
        rest &= rest >> step;
        length += step;
    }
    return first + __builtin_ctz(rest);
}

/* The digits as an int. */
static PyObject *int_of(const digit *digits, Py_ssize_t length)
{
    PyObject *mask;
    while (length && !digits[length - 1])
        length--;
    if (length < 2)
        return PyLong_FromLong(length ? (long)digits[0] : 0);
    mask = new_mask(length);
    if (mask != NULL)
        memcpy(DIGITS(mask), digits, (size_t)length * sizeof(digit));
    return mask;
}

static PyObject *free_mask(FreeUnits *self, void *nothing)
{
    if (self->mask == NULL)
        self->mask = int_of(self->digits, self->leaves);
    return Py_XNewRef(self->mask);
}

static int set_free_mask(FreeUnits *self, PyObject *value, void *nothing)
{
    Mask mask;
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "the mask cannot be deleted");
        return -1;
    }
    if (!read_mask(value, &mask))
        return -1;
    Py_CLEAR(self->mask);
    return begin_with(self, mask.digits, mask.length, mask.length);
}

/* So many digits that are 0 are not kept before the first one that is not. */
#define MOST_EMPTY 16

/* Takes the bits away, whose first digit is number `base`. Returns them and how far they are shifted. */
static PyObject *take_away(FreeUnits *self, PyObject *bits, Py_ssize_t base)
{
    Mask mask;
    PyObject *pair;
    if (bits == NULL)
        return NULL;
    if ((pair = Py_BuildValue("(On)", bits, base * PyLong_SHIFT)) != NULL && read_mask(bits, &mask))
        change(self, &mask, base, 0);
    Py_DECREF(bits);
    return pair;
}

static PyObject *take_lowest(FreeUnits *self, PyObject *argument)
{
    Py_ssize_t count = PyLong_AsSsize_t(argument), base;
    Mask mask;
    PyObject *bits;
    if (count == -1 && PyErr_Occurred())
        return NULL;
    self->lowest = next_digit(self->digits, self->lowest, self->leaves);
    if (count <= 0 || self->lowest == self->leaves)
        return Py_BuildValue("(ii)", 0, 0);
    base = self->lowest > MOST_EMPTY ? self->lowest : 0;
    mask = (Mask){self->digits + base, self->leaves - base};
    bits = cut_behind(&mask, count);
    if (bits == NULL && !PyErr_Occurred())
        bits = int_of(mask.digits, mask.length);
    return take_away(self, bits, base);
}

static PyObject *take_block(FreeUnits *self, PyObject *argument)
{
    Py_ssize_t count = PyLong_AsSsize_t(argument), first, base;
    if (count == -1 && PyErr_Occurred())
        return NULL;
    if (count <= 0 || (first = find_block(self, count)) < 0)
        return take_lowest(self, argument);
    base = first / PyLong_SHIFT;
    if (base <= MOST_EMPTY)
        base = 0;
    first -= base * PyLong_SHIFT;
    return take_away(self, block_of(first, first + count - 1), base);
}

static PyObject *change_by(FreeUnits *self, PyObject *const *args, Py_ssize_t nargs, int adds)
{
    Mask mask;
    Py_ssize_t shift = 0, count = -1;
    PyObject *shifted = NULL;
    if (nargs != 1 && nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "a mask and a shift are needed");
        return NULL;
    }
    if (!read_mask(args[0], &mask) || (nargs == 2 && !read_shift(args[1], &shift)))
        return NULL;
    if (shift % PyLong_SHIFT) {
        if ((shifted = PyNumber_Lshift(args[0], args[1])) == NULL || !read_mask(shifted, &mask))
            return NULL;
        shift = 0;
    }
    shift /= PyLong_SHIFT;
    if (!adds || shift + mask.length <= self->leaves || !begin_with(self, self->digits, self->leaves, shift + mask.length))
        count = shift < self->leaves ? change(self, &mask, shift, adds) : 0;
    Py_XDECREF(shifted);
    return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

static PyObject *take(FreeUnits *self, PyObject *const *args, Py_ssize_t nargs)
{
    return change_by(self, args, nargs, 0);
}

static PyObject *give(FreeUnits *self, PyObject *const *args, Py_ssize_t nargs)
{
    return change_by(self, args, nargs, 1);
}

static PyObject *make_free_units(PyTypeObject *type, PyObject *args, PyObject *named)
{
    FreeUnits *self;
    PyObject *value;
    if (!PyArg_ParseTuple(args, "O:FreeUnits", &value) || (self = (FreeUnits *)type->tp_alloc(type, 0)) == NULL)
        return NULL;
    if (set_free_mask(self, value, NULL))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void free_free_units(FreeUnits *self)
{
    PyMem_Free(self->digits);
    PyMem_Free(self->parts);
    Py_XDECREF(self->mask);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef free_units_methods[] = {
    {"take_block", (PyCFunction)take_block, METH_O, "Takes the lowest block, else the lowest units."},
    {"take_lowest", (PyCFunction)take_lowest, METH_O, "Takes the lowest units."},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, "Takes units; returns how many of them were free."},
    {"give", (PyCFunction)(void (*)(void))give, METH_FASTCALL, "Gives units back; returns how many of them were not free."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef free_units_members[] = {
    {"mask", (getter)free_mask, (setter)set_free_mask, "All free units.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject FreeUnitsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pilothouse.model._masks.FreeUnits",
    .tp_basicsize = sizeof(FreeUnits),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A set of units that changes.",
    .tp_new = make_free_units,
    .tp_dealloc = (destructor)free_free_units,
    .tp_methods = free_units_methods,
    .tp_getset = free_units_members,
};

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
    PyObject *self = PyType_Ready(&FreeUnitsType) < 0 ? NULL : PyModule_Create(&module);
    if (self != NULL && PyModule_AddObjectRef(self, "FreeUnits", (PyObject *)&FreeUnitsType) < 0)
        Py_CLEAR(self);
    return self;
}
