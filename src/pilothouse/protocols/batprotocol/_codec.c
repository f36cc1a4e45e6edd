/* The frequent messages of batprotocol in C: what binary.py and decisions.py do in Python, who are its oracle.
 *
 * encode(now, events, kinds, profiles) -> bytes | None
 *     A message of submitted jobs, ended jobs and "no more jobs", byte for byte as binary.encode writes it. `kinds` is
 *     (JobSubmitted, JobEnded, NoMoreJobs, {state: number of the final state}); the profiles of submitted jobs are put
 *     into `profiles` by their names. None: something else is to be told.
 * decode(data) -> (now, [decision, ...]) | None
 *     A message of decisions to execute jobs (at, job id, bitmask of hosts, whether to fill hosts) with predefined placement
 *     and nothing else, and to reject jobs (at, job id). None: anything else, and everything that is malformed; the
 *     Python codec has the words for it.
 * take_decisions(address, message) -> bytes | int | None
 *     Calls a component's function; its reply, or its return value if that is not 0, or None if it gave no buffer.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>

#define MOST_HOSTS 8192            /* in a bitmask that is made here */
#define MOST_REPLY (1u << 28)

static PyObject *s_at, *s_job, *s_id, *s_units, *s_shape, *s_most_units, *s_walltime, *s_extra_data, *s_profile, *s_name,
    *s_submitted_at, *s_job_id, *s_state, *s_return_code;

/* ---- writing. `failed` is set, and stays, if something must be left to Python; an exception may be set as well. */

typedef struct { uint8_t *data; size_t size, room; int failed; } out;

/* Room for `count` bytes (at most 64 if memory is short: they are thrown away). */
static uint8_t *more(out *o, size_t count)
{
    static uint8_t nowhere[64];
    if (o->size + count > o->room) {
        size_t room = (o->size + count) * 2;
        uint8_t *data = PyMem_Realloc(o->data, room);
        if (data == NULL) {
            PyErr_NoMemory();
            o->failed = 1;
            return nowhere;
        }
        o->data = data;
        o->room = room;
    }
    o->size += count;
    return o->data + o->size - count;
}

static void put32(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
    to[2] = (uint8_t)(value >> 16);
    to[3] = (uint8_t)(value >> 24);
}

static void put_double(uint8_t *to, double value)
{
    PyFloat_Pack8(value, (char *)to, 1); /* cannot fail: doubles are IEEE 754 wherever Python runs */
}

static PyObject *get(out *o, PyObject *owner, PyObject *name)
{
    PyObject *found = o->failed ? NULL : PyObject_GetAttr(owner, name);
    o->failed |= found == NULL;
    return found;
}

static double get_number(out *o, PyObject *owner, PyObject *name)
{
    PyObject *found = get(o, owner, name);
    double value = found == NULL ? 0.0 : PyFloat_AsDouble(found);
    o->failed |= value == -1.0 && PyErr_Occurred();
    Py_XDECREF(found);
    return value;
}

static long long get_integer(out *o, PyObject *owner, PyObject *name)
{
    PyObject *found = get(o, owner, name);
    long long value = found == NULL ? 0 : PyLong_AsLongLong(found);
    o->failed |= value == -1 && PyErr_Occurred();
    Py_XDECREF(found);
    return value;
}

/* A string (None: an empty one), filled up to a multiple of 8; returns its size in the buffer. */
static uint32_t put_text(out *o, PyObject *text)
{
    Py_ssize_t length = 0;
    const char *raw = o->failed || text == Py_None ? "" : PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    size_t size = ((size_t)length + 4 + 8) & ~(size_t)7;
    uint8_t *to;
    if (raw == NULL || length > INT32_MAX)
        o->failed = 1;
    if (o->failed)
        return 0;
    to = more(o, size);
    if (o->failed)
        return 0;
    memset(to + size - 8, 0, 8);
    put32(to, (uint32_t)length);
    memcpy(to + 4, raw, (size_t)length);
    return (uint32_t)size;
}

static uint32_t put_text_of(out *o, PyObject *owner, PyObject *name)
{
    PyObject *found = get(o, owner, name);
    uint32_t size = put_text(o, found);
    Py_XDECREF(found);
    return size;
}

/* The date and the kind of an event stand before it. */
static void put_event(out *o, PyObject *event, uint8_t kind, uint8_t table_at)
{
    static const uint8_t head[20] = {10, 0, 17, 0, 8, 0, 16, 0, 4, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0};
    double at = get_number(o, event, s_at);
    uint8_t *to = more(o, 40);
    memcpy(to, head, 20);
    put32(to + 20, 20u + table_at);
    put_double(to + 24, at);
    memset(to + 32, 0, 8);
    to[32] = kind;
}

static void put_submitted(out *o, PyObject *event, PyObject *profiles)
{
    static const uint8_t event_head[24] = {12, 0, 24, 0, 4, 0, 16, 0, 8, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 20, 0, 0, 0};
    static const uint8_t job_head[20] = {14, 0, 25, 0, 4, 0, 0, 0, 16, 0, 24, 0, 20, 0, 0, 0, 16, 0, 0, 0};
    PyObject *job = get(o, event, s_job), *shape = get(o, job, s_shape), *profile = get(o, job, s_profile);
    PyObject *extra = get(o, job, s_extra_data), *name = profile == Py_None ? Py_NewRef(Py_None) : get(o, profile, s_name);
    double submitted_at = get_number(o, job, s_submitted_at), walltime = get_number(o, job, s_walltime);
    long long units = get_integer(o, job, s_units), most_units = get_integer(o, job, s_most_units);
    size_t event_at, job_at;
    uint32_t size;
    uint8_t *to;
    put_event(o, event, 1, 16);
    if (shape != Py_None || units < 0 || units > UINT32_MAX)
        o->failed = 1;
    event_at = o->size;
    to = more(o, 40);
    memcpy(to, event_head, 24);
    put_double(to + 24, submitted_at);
    put32(to + 36, 0);
    size = put_text_of(o, job, s_id);
    job_at = o->size;
    to = more(o, 48);
    memcpy(to, job_head, 20);
    put32(to + 20, (uint32_t)units);
    if (walltime != INFINITY)
        to[6] = 8;
    put_double(to + 24, walltime != INFINITY ? walltime : 0.0);
    put32(to + 32, 16);
    memset(to + 40, 0, 8);
    to[40] = !most_units || most_units == units;
    if (!o->failed) {
        put32(o->data + event_at + 32, 8 + size + 16);
        size = put_text(o, extra);
        put32(o->data + job_at + 36, 12 + size);
        put_text(o, name);
        if (!o->failed && profile != Py_None && PyDict_SetItem(profiles, name, profile))
            o->failed = 1;
    }
    Py_XDECREF(job);
    Py_XDECREF(shape);
    Py_XDECREF(profile);
    Py_XDECREF(extra);
    Py_XDECREF(name);
}

static void put_ended(out *o, PyObject *event, PyObject *finals)
{
    static const uint8_t head[24] = {10, 0, 13, 0, 4, 0, 12, 0, 8, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 12, 0, 0, 0};
    PyObject *state = get(o, event, s_state), *final = o->failed ? NULL : PyDict_GetItemWithError(finals, state);
    long number = final == NULL ? -1 : PyLong_AsLong(final);
    uint32_t code = (uint32_t)get_integer(o, event, s_return_code);
    uint8_t *to;
    Py_XDECREF(state);
    o->failed |= number < 0;
    put_event(o, event, 2, 16);
    to = more(o, 32);
    memcpy(to, head, 24);
    put32(to + 24, code);
    put32(to + 28, (uint32_t)(uint8_t)number);
    put_text_of(o, event, s_job_id);
}

static void put_no_more(out *o, PyObject *event)
{
    static const uint8_t body[16] = {4, 0, 4, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0};
    put_event(o, event, 21, 8);
    memcpy(more(o, 16), body, 16);
}

static PyObject *encode(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    static const uint8_t head[24] = {16, 0, 0, 0, 0, 0, 0, 0, 8, 0, 16, 0, 8, 0, 4, 0, 8, 0, 0, 0, 12, 0, 0, 0};
    out o = {NULL, 0, 0, 0};
    PyObject *events, *kinds, *result;
    Py_ssize_t count, i;
    size_t base;
    double now;
    (void)self;
    if (nargs != 4 || !PyList_Check(args[1]) || !PyTuple_Check(args[2]) || PyTuple_GET_SIZE(args[2]) != 4 ||
        !PyDict_Check(PyTuple_GET_ITEM(args[2], 3)) || !PyDict_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "encode(now, events, (submitted, ended, no more, finals), profiles)");
        return NULL;
    }
    now = PyFloat_AsDouble(args[0]);
    if (now == -1.0 && PyErr_Occurred())
        return NULL;
    events = args[1];
    kinds = args[2];
    count = PyList_GET_SIZE(events);
    if (!count)
        Py_RETURN_NONE;
    for (i = 0; i < count; i++) {
        PyObject *kind = (PyObject *)Py_TYPE(PyList_GET_ITEM(events, i));
        if (kind != PyTuple_GET_ITEM(kinds, 0) && kind != PyTuple_GET_ITEM(kinds, 1) && kind != PyTuple_GET_ITEM(kinds, 2))
            Py_RETURN_NONE;
    }
    base = 32 + ((4 + 4 * (size_t)count + 7) & ~(size_t)7);
    o.size = base;
    o.room = base + 256 * (size_t)count;
    o.data = PyMem_Calloc(1, o.room);
    if (o.data == NULL)
        return PyErr_NoMemory();
    memcpy(o.data, head, 24);
    put_double(o.data + 24, now);
    put32(o.data + 32, (uint32_t)count);
    for (i = 0; i < count && !o.failed; i++) {
        PyObject *event = PyList_GET_ITEM(events, i), *kind = (PyObject *)Py_TYPE(event);
        put32(o.data + 36 + 4 * i, (uint32_t)(o.size + 16 - (36 + 4 * (size_t)i)));
        if (kind == PyTuple_GET_ITEM(kinds, 0))
            put_submitted(&o, event, args[3]);
        else if (kind == PyTuple_GET_ITEM(kinds, 1))
            put_ended(&o, event, PyTuple_GET_ITEM(kinds, 3));
        else
            put_no_more(&o, event);
    }
    if (o.failed && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_MemoryError))
        PyErr_Clear(); /* Python says what is wrong. */
    result = PyErr_Occurred() ? NULL : o.failed ? Py_NewRef(Py_None)
        : PyBytes_FromStringAndSize((const char *)o.data, (Py_ssize_t)o.size);
    PyMem_Free(o.data);
    return result;
}

/* ---- reading; every function returns 0 where the buffer is not as it should be */

typedef struct { const uint8_t *data; size_t size; } in;
typedef struct { size_t at, vtable; uint32_t vtable_size, size; } table;

static uint32_t get16(const in *i, size_t at) { return i->data[at] | (uint32_t)i->data[at + 1] << 8; }

static uint32_t get32(const in *i, size_t at) { return get16(i, at) | get16(i, at + 2) << 16; }

static double get_double(const in *i, size_t at) { return PyFloat_Unpack8((const char *)i->data + at, 1); }

/* `widths`: a digit for each field, its size in bytes. */
static int open_table(const in *i, size_t at, table *t, const char *widths)
{
    int64_t vtable;
    uint32_t one, other, known;
    if (at + 4 > i->size || at + 4 < at)
        return 0;
    vtable = (int64_t)at - (int32_t)get32(i, at);
    if (vtable < 0 || (size_t)vtable + 4 > i->size)
        return 0;
    t->at = at;
    t->vtable = (size_t)vtable;
    t->vtable_size = get16(i, t->vtable);
    t->size = get16(i, t->vtable + 2);
    if (t->vtable_size < 4 || t->vtable_size % 2 || t->vtable + t->vtable_size > i->size || at + t->size > i->size)
        return 0;
    known = t->vtable_size / 2 - 2;
    for (one = 0; one < known && widths[one]; one++) {
        uint32_t offset = get16(i, t->vtable + 4 + 2 * one);
        for (other = 0; offset && other < one; other++) {
            uint32_t before = get16(i, t->vtable + 4 + 2 * other);
            if (before && offset < before + (uint32_t)(widths[other] - '0') && before < offset + (uint32_t)(widths[one] - '0'))
                return 0;
        }
        if (offset && offset < 4)
            return 0;
    }
    return 1;
}

/* Where a field lies: -1 if it is wrong, 0 if it is not there. */
static int64_t field(const in *i, const table *t, uint32_t number, uint32_t width)
{
    uint32_t offset;
    if (4 + 2 * number + 2 > t->vtable_size)
        return 0;
    offset = get16(i, t->vtable + 4 + 2 * number);
    if (!offset)
        return 0;
    return offset >= 4 && offset + width <= t->size ? (int64_t)(t->at + offset) : -1;
}

/* Where the part lies that a field refers to. */
static int64_t part(const in *i, const table *t, uint32_t number)
{
    int64_t at = field(i, t, number, 4);
    uint32_t offset;
    if (at <= 0)
        return at;
    offset = get32(i, (size_t)at);
    return !offset ? 0 : (size_t)at + offset + 4 <= i->size ? at + offset : -1;
}

static int text_at(const in *i, int64_t at, const char **text, size_t *length)
{
    if (at <= 0)
        return 0;
    *length = get32(i, (size_t)at);
    *text = (const char *)i->data + at + 4;
    return (size_t)at + 4 + *length < i->size && !i->data[(size_t)at + 4 + *length];
}

/* Whether a field is left out, or a vector of nothing: the library of the real components always writes one. */
static int is_empty(const in *i, const table *t, uint32_t number)
{
    int64_t at = part(i, t, number);
    return !at || (at > 0 && !get32(i, (size_t)at));
}

/* "0-3 7" as a bitmask; NULL (without an exception) if it is anything else. */
static PyObject *hosts_in(const char *text, size_t length)
{
    uint8_t bits[MOST_HOSTS / 8];
    size_t used = 0, at = 0;
    while (at < length) {
        unsigned first = 0, last, digits = 0;
        if (text[at] == ' ') {
            at++;
            continue;
        }
        for (; at < length && text[at] >= '0' && text[at] <= '9' && digits < 6; at++, digits++)
            first = first * 10 + (unsigned)(text[at] - '0');
        if (!digits)
            return NULL;
        last = first;
        if (at < length && text[at] == '-') {
            last = digits = 0;
            for (at++; at < length && text[at] >= '0' && text[at] <= '9' && digits < 6; at++, digits++)
                last = last * 10 + (unsigned)(text[at] - '0');
            if (!digits || last < first)
                return NULL;
        }
        if (last >= MOST_HOSTS || (at < length && text[at] != ' '))
            return NULL;
        while (used <= last / 8)
            bits[used++] = 0;
        for (; first <= last; first++)
            bits[first / 8] |= (uint8_t)(1 << first % 8);
    }
    if (used <= 8) {
        uint64_t mask = 0;
        while (used)
            mask = mask << 8 | bits[--used];
        return PyLong_FromUnsignedLongLong(mask);
    }
    return _PyLong_FromByteArray(bits, used, 1, 0);
}

/* A tuple of a date and what it takes over; NULL if some of that is NULL. */
static PyObject *dated(double when, Py_ssize_t count, PyObject **items)
{
    PyObject *tuple = PyTuple_New(count + 1), *date = PyFloat_FromDouble(when);
    int good = tuple != NULL && date != NULL;
    for (Py_ssize_t k = 0; k < count; k++)
        good = good && items[k] != NULL;
    if (!good) {
        for (Py_ssize_t k = 0; k < count; k++)
            Py_XDECREF(items[k]);
        Py_XDECREF(date);
        Py_XDECREF(tuple);
        return NULL;
    }
    PyTuple_SET_ITEM(tuple, 0, date);
    for (Py_ssize_t k = 0; k < count; k++)
        PyTuple_SET_ITEM(tuple, k + 1, items[k]);
    return tuple;
}

/* One decision as a tuple, or NULL (with or without an exception). */
static PyObject *decision_in(const in *i, size_t at, double *last, double now)
{
    table event, body;
    int64_t date, kind, where;
    double when;
    const char *text;
    size_t length;
    if (!open_table(i, at, &event, "814"))
        return NULL;
    date = field(i, &event, 0, 8);
    kind = field(i, &event, 1, 1);
    where = part(i, &event, 2);
    if (date < 0 || kind <= 0 || where <= 0)
        return NULL;
    when = date ? get_double(i, (size_t)date) : 0.0;
    if (!(when <= now && when >= *last) || !open_table(i, (size_t)where, &body, "4444") ||
        !text_at(i, part(i, &body, 0), &text, &length))
        return NULL;
    *last = when;
    if (i->data[kind] == 3)
        return dated(when, 1, (PyObject *[]){PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, NULL)});
    if (i->data[kind] == 4) {
        table allocation, placement;
        int64_t union_kind, strategy, hosts = part(i, &body, 1);
        const char *host_text;
        size_t host_length;
        if (hosts <= 0 || !is_empty(i, &body, 2) || !is_empty(i, &body, 3) || !open_table(i, (size_t)hosts, &allocation, "414") ||
            !text_at(i, part(i, &allocation, 0), &host_text, &host_length))
            return NULL;
        union_kind = field(i, &allocation, 1, 1);
        where = part(i, &allocation, 2);
        if (union_kind <= 0 || i->data[union_kind] != 1 || where <= 0 || !open_table(i, (size_t)where, &placement, "1"))
            return NULL;
        strategy = field(i, &placement, 0, 1);
        if (strategy < 0 || (strategy && i->data[strategy] > 1))
            return NULL;
        return dated(when, 3, (PyObject *[]){PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, NULL),
                                             hosts_in(host_text, host_length), PyBool_FromLong(strategy && i->data[strategy])});
    }
    return NULL;
}

static PyObject *decode(PyObject *self, PyObject *data)
{
    in i;
    table message;
    int64_t date, events;
    uint32_t count = 0, number;
    double now, last = 0.0;
    PyObject *decisions;
    (void)self;
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "decode(bytes)");
        return NULL;
    }
    i.data = (const uint8_t *)PyBytes_AS_STRING(data);
    i.size = (size_t)PyBytes_GET_SIZE(data);
    if (i.size < 8 || !open_table(&i, get32(&i, 0), &message, "84"))
        Py_RETURN_NONE;
    date = field(&i, &message, 0, 8);
    events = part(&i, &message, 1);
    if (date < 0 || events < 0)
        Py_RETURN_NONE;
    now = date ? get_double(&i, (size_t)date) : 0.0;
    if (events) {
        count = get32(&i, (size_t)events);
        if (count > (i.size - (size_t)events - 4) / 4)
            Py_RETURN_NONE;
    }
    decisions = PyList_New((Py_ssize_t)count);
    if (decisions == NULL)
        return NULL;
    for (number = 0; number < count; number++) {
        size_t at = (size_t)events + 4 + 4 * (size_t)number;
        PyObject *decision = decision_in(&i, at + get32(&i, at), &last, now);
        if (decision == NULL) {
            Py_DECREF(decisions);
            if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError))
                return NULL;
            PyErr_Clear();
            Py_RETURN_NONE;
        }
        PyList_SET_ITEM(decisions, number, decision);
    }
    return dated(now, 1, (PyObject *[]){decisions});
}

/* ---- calling */

typedef uint8_t (*taker)(const uint8_t *, uint32_t, uint8_t **, uint32_t *);

static PyObject *take_decisions(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    taker function;
    uint8_t *reply = NULL, code;
    uint32_t size = 0;
    (void)self;
    if (nargs != 2 || !PyBytes_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "take_decisions(address, bytes)");
        return NULL;
    }
    function = (taker)PyLong_AsVoidPtr(args[0]);
    if (function == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no function");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    code = function((const uint8_t *)PyBytes_AS_STRING(args[1]), (uint32_t)PyBytes_GET_SIZE(args[1]), &reply, &size);
    Py_END_ALLOW_THREADS
    if (code)
        return PyLong_FromLong(code);
    if (reply == NULL || !size || size > MOST_REPLY)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)reply, (Py_ssize_t)size);
}

static PyMethodDef methods[] = {
    {"encode", (PyCFunction)(void (*)(void))encode, METH_FASTCALL, "A message of frequent events, or None."},
    {"decode", decode, METH_O, "The decisions of a message of frequent ones, or None."},
    {"take_decisions", (PyCFunction)(void (*)(void))take_decisions, METH_FASTCALL, "Calls a component."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_codec", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__codec(void)
{
    static const struct { PyObject **name; const char *text; } names[] = {
        {&s_at, "at"}, {&s_job, "job"}, {&s_id, "id"}, {&s_units, "units"}, {&s_shape, "shape"},
        {&s_most_units, "most_units"}, {&s_walltime, "walltime"}, {&s_extra_data, "extra_data"},
        {&s_profile, "profile"}, {&s_name, "name"}, {&s_submitted_at, "submitted_at"}, {&s_job_id, "job_id"},
        {&s_state, "state"}, {&s_return_code, "return_code"},
    };
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL)
            return NULL;
    return PyModule_Create(&module);
}
