/* The backfill queue in C: the twin of PlainBackfillQueue in backfill_queue.py, which is its oracle and documents it.
 *
 * Entries and ends are allocated once each; lists of pointers to them are kept sorted. A pass is a dialogue, so its state
 * (phase, list, place) is kept between first() and next().
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <structmember.h>

/* `beside`: how many units must be left over if the job is to leave the reservation alone. */
typedef struct {
    double score, estimate;
    long long number, units, beside;
    PyObject *job, *job_id;
    int shaped;
} Entry;

typedef struct {
    double date;
    long long number, units;
    PyObject *job_id;
    int announced;
} End;

/* A list of pointers of which the first `gone` are empty. */
typedef struct {
    void **items;
    Py_ssize_t gone, length, room;
} List;

enum { NONE, FILL, EASY };
enum { IDLE, HEADS, OVERTAKING };

typedef struct {
    PyObject_HEAD
    char aside, shortest_first, whole_pass;
    int backfill, phase;
    PyObject *avoid, *reservations, *reserve_shaped, *end_of;
    List queue, by_estimate, ends, fresh, *from;
    Py_ssize_t at;
    long long numbers, unseen, extra, free;
    double shadow, now;
    Entry *asked;
} Queue;

static PyObject *text_id, *text_shape, *text_nodes, *zero;

/* ---- lists */

#define COUNT(list) ((list)->length - (list)->gone)

static int insert(List *list, Py_ssize_t at, void *item)
{
    if (list->length == list->room) {
        Py_ssize_t count = COUNT(list);
        if (list->gone > list->room / 2) {
            memmove(list->items, list->items + list->gone, (size_t)count * sizeof(void *));
            at -= list->gone;
            list->gone = 0;
            list->length = count;
        }
        else {
            Py_ssize_t room = list->room ? 2 * list->room : 64;
            void **items = PyMem_Realloc(list->items, (size_t)room * sizeof(void *));
            if (items == NULL)
                return PyErr_NoMemory(), -1;
            list->items = items;
            list->room = room;
        }
    }
    memmove(list->items + at + 1, list->items + at, (size_t)(list->length - at) * sizeof(void *));
    list->items[at] = item;
    list->length++;
    return 0;
}

static void take_out(List *list, Py_ssize_t at)
{
    if (at == list->gone) {
        list->gone++;
        if (list->gone == list->length)
            list->gone = list->length = 0;
    }
    else {
        list->length--;
        memmove(list->items + at, list->items + at + 1, (size_t)(list->length - at) * sizeof(void *));
    }
}

static int before(double a, long long a_number, double b, long long b_number)
{
    return a == b ? a_number < b_number : a < b;
}

#define KEY(item, field) (*(double *)((char *)(item) + (field)))
#define NUMBER(item, field) (*(long long *)((char *)(item) + (field)))
#define BY_SCORE offsetof(Entry, score), offsetof(Entry, number)
#define BY_ESTIMATE offsetof(Entry, estimate), offsetof(Entry, number)
#define BY_DATE offsetof(End, date), offsetof(End, number)

/* Where an item belongs: before the first that is greater by the number at `key`, then by the one at `number`. */
static Py_ssize_t place_of(const List *list, const void *item, size_t key, size_t number)
{
    double value = KEY(item, key);
    long long rank = NUMBER(item, number);
    Py_ssize_t low = list->gone, high = list->length;
    if (high > low && !before(value, rank, KEY(list->items[high - 1], key), NUMBER(list->items[high - 1], number)))
        return high;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        const void *other = list->items[middle];
        if (before(value, rank, KEY(other, key), NUMBER(other, number)))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int insert_sorted(List *list, void *item, size_t key, size_t number)
{
    return insert(list, place_of(list, item, key, number), item);
}

/* Takes out that very item. */
static void drop(List *list, const void *item, size_t key, size_t number)
{
    take_out(list, place_of(list, item, key, number) - 1);
}

static void free_entry(Entry *entry)
{
    Py_DECREF(entry->job);
    Py_DECREF(entry->job_id);
    PyMem_Free(entry);
}

static void free_end(End *end)
{
    Py_DECREF(end->job_id);
    PyMem_Free(end);
}

/* An entry leaves the queue: its job was started or withdrawn. */
static void forget(Queue *self, Entry *entry)
{
    drop(&self->queue, entry, BY_SCORE);
    if (self->shortest_first)
        drop(&self->by_estimate, entry, BY_ESTIMATE);
    free_entry(entry);
}

/* ---- numbers */

static int as_number(PyObject *object, long long *to)
{
    *to = PyLong_AsLongLong(object);
    return *to == -1 && PyErr_Occurred() ? -1 : 0;
}

static int as_double(PyObject *object, double *to)
{
    *to = PyFloat_AsDouble(object);
    return *to == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* NaN comes last. */
static int as_score(PyObject *object, double *to)
{
    int failed = as_double(object, to);
    if (isnan(*to))
        *to = Py_HUGE_VAL;
    return failed;
}

static int wrong(const char *usage)
{
    PyErr_SetString(PyExc_TypeError, usage);
    return -1;
}

/* ---- events */

/* Whether the job has a shape, and on how many nodes; -1: an exception. */
static int shape_of(PyObject *job, long long *nodes)
{
    PyObject *shape = PyObject_GetAttr(job, text_shape), *found;
    int shaped = shape == NULL ? -1 : shape != Py_None;
    if (shaped == 1) {
        found = PyObject_GetAttr(shape, text_nodes);
        if (found == NULL || as_number(found, nodes))
            shaped = -1;
        Py_XDECREF(found);
    }
    Py_XDECREF(shape);
    return shaped;
}

static PyObject *queue_add(Queue *self, PyObject *const *args, Py_ssize_t nargs)
{
    Entry *entry;
    PyObject *job_id;
    double score, estimate;
    long long units, nodes = 1;
    int shaped;
    if (nargs != 4)
        return wrong("add takes a job, a score, an estimate and a number of units"), NULL;
    if (as_score(args[1], &score) || as_double(args[2], &estimate) || as_number(args[3], &units)
        || (shaped = shape_of(args[0], &nodes)) < 0 || (job_id = PyObject_GetAttr(args[0], text_id)) == NULL)
        return NULL;
    if ((entry = PyMem_Malloc(sizeof *entry)) == NULL)
        return PyErr_NoMemory();
    *entry = (Entry){
        score, estimate, ++self->numbers, units, units * (nodes > 1 ? nodes : 1), Py_NewRef(args[0]), job_id, shaped
    };
    if (insert_sorted(&self->queue, entry, BY_SCORE)
        || (self->shortest_first && insert_sorted(&self->by_estimate, entry, BY_ESTIMATE))
        || insert(&self->fresh, self->fresh.length, entry))
        return NULL;
    if (self->queue.items[self->queue.gone] == entry)
        self->whole_pass = 1;
    Py_RETURN_NONE;
}

static PyObject *queue_remove(Queue *self, PyObject *job)
{
    Py_ssize_t index;
    self->whole_pass = 1;
    self->fresh.gone = self->fresh.length = 0;
    for (index = self->queue.length - 1; COUNT(&self->queue) && index >= self->queue.gone; index--)
        if (((Entry *)self->queue.items[index])->job == job)
            forget(self, self->queue.items[index]);
    Py_RETURN_NONE;
}

static int by_score(const void *a, const void *b)
{
    const Entry *one = *(Entry *const *)a, *other = *(Entry *const *)b;
    return before(one->score, one->number, other->score, other->number) ? -1 : 1;
}

static PyObject *queue_rescore(Queue *self, PyObject *score)
{
    Py_ssize_t index;
    self->whole_pass = 1;
    for (index = self->queue.gone; index < self->queue.length; index++) {
        Entry *entry = self->queue.items[index];
        PyObject *value = PyObject_CallOneArg(score, entry->job);
        int failed = value == NULL || as_score(value, &entry->score);
        Py_XDECREF(value);
        if (failed)
            return NULL;
    }
    if (COUNT(&self->queue) > 1)
        qsort(self->queue.items + self->queue.gone, (size_t)COUNT(&self->queue), sizeof(void *), by_score);
    Py_RETURN_NONE;
}

static int note_end(Queue *self, PyObject *job_id, double date, long long units)
{
    End *end = PyMem_Malloc(sizeof *end);
    PyObject *pointer;
    int failed;
    if (end == NULL)
        return PyErr_NoMemory(), -1;
    *end = (End){date, ++self->numbers, units, Py_NewRef(job_id), 0};
    if ((pointer = PyLong_FromVoidPtr(end)) == NULL)
        return -1;
    failed = PyDict_SetItem(self->end_of, job_id, pointer);
    Py_DECREF(pointer);
    return failed || (self->backfill == EASY && insert_sorted(&self->ends, end, BY_DATE)) ? -1 : 0;
}

static PyObject *queue_hold(Queue *self, PyObject *const *args, Py_ssize_t nargs)
{
    double date;
    long long units;
    if (nargs != 3)
        return wrong("hold takes a job's id, a date and a number of units"), NULL;
    if (as_double(args[1], &date) || as_number(args[2], &units) || note_end(self, args[0], date, units))
        return NULL;
    Py_RETURN_NONE;
}

/* The expected end of a job; NULL if there is none, or with an exception set. */
static End *end_of(Queue *self, PyObject *job_id)
{
    PyObject *pointer = PyDict_GetItemWithError(self->end_of, job_id);
    return pointer == NULL ? NULL : PyLong_AsVoidPtr(pointer);
}

static int release(Queue *self, End *end)
{
    int failed = PyDict_DelItem(self->end_of, end->job_id);
    if (self->backfill == EASY)
        drop(&self->ends, end, BY_DATE);
    free_end(end);
    return failed;
}

static PyObject *queue_announce_end(Queue *self, PyObject *const *args, Py_ssize_t nargs)
{
    double now;
    End *end;
    if (nargs != 2)
        return wrong("announce_end takes a job's id and a date"), NULL;
    if (as_double(args[1], &now))
        return NULL;
    if ((end = end_of(self, args[0])) == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    if (end->date > now) {
        self->unseen += end->units;
        end->announced = 1;
    }
    else {
        self->whole_pass = 1;
        if (release(self, end))
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *queue_ended(Queue *self, PyObject *job_id)
{
    End *end = end_of(self, job_id);
    self->whole_pass = 1;
    if (end == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_FALSE;
    }
    if (end->announced)
        self->unseen -= end->units;
    if (release(self, end))
        return NULL;
    Py_RETURN_TRUE;
}

static PyObject *queue_look_again(Queue *self, PyObject *nothing)
{
    self->whole_pass = 1;
    Py_RETURN_NONE;
}

static PyObject *queue_ends(Queue *self, PyObject *nothing)
{
    Py_ssize_t index, count = COUNT(&self->ends);
    PyObject *ends = PyList_New(count);
    for (index = 0; ends != NULL && index < count; index++) {
        const End *end = self->ends.items[self->ends.gone + index];
        PyObject *item = Py_BuildValue("(dO)", end->date, end->job_id);
        if (item == NULL) {
            Py_DECREF(ends);
            return NULL;
        }
        PyList_SET_ITEM(ends, index, item);
    }
    return ends;
}

/* ---- a pass */

static int reserve_shaped(Queue *self, PyObject *head, long long free)
{
    PyObject *answer = PyObject_CallOneArg(self->reserve_shaped, head);
    int failed = answer == NULL || !PyTuple_Check(answer) || PyTuple_GET_SIZE(answer) != 2
        || as_double(PyTuple_GET_ITEM(answer, 0), &self->shadow);
    if (!failed) {
        PyObject *mask = PyTuple_GET_ITEM(answer, 1);
        int reserved = PyObject_IsTrue(mask) == 1;
        Py_SETREF(self->avoid, Py_NewRef(reserved ? mask : zero));
        self->extra = reserved ? 0 : free;
    }
    else if (!PyErr_Occurred())
        wrong("a reservation is a date and a mask");
    Py_XDECREF(answer);
    return failed ? -1 : 0;
}

/* `free` counts what may be used in this pass. */
static int reserve(Queue *self, long long free)
{
    const Entry *head = self->queue.items[self->queue.gone];
    PyObject *date;
    int failed;
    if (head->shaped) {
        if (reserve_shaped(self, head->job, free))
            return -1;
    }
    else {
        long long missing = head->units - free;
        Py_ssize_t index;
        Py_SETREF(self->avoid, Py_NewRef(zero));
        self->shadow = Py_HUGE_VAL;
        for (index = self->ends.gone; index < self->ends.length; index++) {
            const End *end = self->ends.items[index];
            if (missing <= 0 && end->date > self->shadow)
                break;
            missing -= end->units;
            self->shadow = end->date;
        }
        self->extra = -missing;
        if (missing > 0) {
            self->shadow = Py_HUGE_VAL;
            self->extra = free;
        }
    }
    if ((date = PyFloat_FromDouble(self->shadow)) == NULL)
        return -1;
    /* Only the head has one; another job may have been the head before. */
    PyDict_Clear(self->reservations);
    failed = PyDict_SetItem(self->reservations, head->job_id, date);
    Py_DECREF(date);
    return failed;
}

static PyObject *ask(Queue *self, Entry *entry, int aside)
{
    self->asked = entry;
    self->aside = (char)aside;
    return Py_NewRef(entry->job);
}

static PyObject *no_more(Queue *self)
{
    self->phase = IDLE;
    self->from = NULL;
    self->fresh.gone = self->fresh.length = 0;
    Py_RETURN_NONE;
}

/* From where the pass stands, the next job to start. */
static PyObject *overtake(Queue *self)
{
    List *from = self->from;
    int reserved = self->avoid != zero;
    const Entry *head = self->queue.items[self->queue.gone];
    for (; self->at < from->length && self->free > self->unseen; self->at++) {
        Entry *entry = from->items[self->at];
        long long usable = self->free - self->unseen;
        int in_time;
        if (entry->units > usable || entry == head)
            continue;
        in_time = self->now + entry->estimate <= self->shadow && entry->estimate < Py_HUGE_VAL;
        if (in_time || reserved || entry->beside <= self->extra)
            return ask(self, entry, !in_time);
    }
    return no_more(self);
}

/* The heads that fit, then the reservation. */
static PyObject *over_all(Queue *self)
{
    if (COUNT(&self->queue) == 0)
        return no_more(self);
    if (self->phase == HEADS) {
        Entry *head = self->queue.items[self->queue.gone];
        if (head->units <= self->free - self->unseen)
            return ask(self, head, 0);
    }
    if (self->backfill == NONE) {
        self->shadow = Py_HUGE_VAL;
        return no_more(self);
    }
    if (self->backfill == FILL) {
        self->shadow = Py_HUGE_VAL;
        self->extra = self->free - self->unseen;
    }
    else if (reserve(self, self->free - self->unseen))
        return NULL;
    self->phase = OVERTAKING;
    self->from = self->shortest_first ? &self->by_estimate : &self->queue;
    self->at = self->from->gone;
    return overtake(self);
}

static PyObject *queue_first(Queue *self, PyObject *const *args, Py_ssize_t nargs)
{
    double now;
    long long free;
    if (nargs != 2)
        return wrong("first takes a date and a number of units"), NULL;
    if (as_double(args[0], &now) || as_number(args[1], &free))
        return NULL;
    if (COUNT(&self->queue) == 0 || free <= self->unseen)
        return no_more(self);
    self->now = now;
    self->free = free;
    if (self->whole_pass || now > self->shadow) {
        self->whole_pass = 0;
        self->phase = HEADS;
        return over_all(self);
    }
    if (COUNT(&self->fresh) == 0 || self->backfill == NONE)
        return no_more(self);
    self->phase = OVERTAKING;
    self->from = &self->fresh;
    self->at = 0;
    return overtake(self);
}

static PyObject *queue_next(Queue *self, PyObject *argument)
{
    long long free, given;
    Entry *entry = self->asked;
    if (as_number(argument, &free))
        return NULL;
    if (self->phase == IDLE || entry == NULL)
        return no_more(self);
    given = self->free - free;
    self->free = free;
    self->asked = NULL;
    if (given) {
        if (note_end(self, entry->job_id, self->now + entry->estimate, given))
            return NULL;
        if (self->phase == OVERTAKING && self->aside && self->avoid == zero)
            self->extra -= given;
        if (self->from == &self->fresh)
            self->at++;
        else if (self->from != NULL && self->at == self->from->gone)
            self->at++;     /* taking out the first leaves the others where they are */
        forget(self, entry);
    }
    else if (self->phase == OVERTAKING)
        self->at++;
    if (self->phase == HEADS) {
        if (!given) {
            /* counts said that it fits, and it does not: it is the one to reserve for */
            self->phase = OVERTAKING;
        }
        return over_all(self);
    }
    return overtake(self);
}

/* ---- the type */

static int queue_init(Queue *self, PyObject *args, PyObject *keywords)
{
    const char *backfill;
    int shortest_first;
    PyObject *reservations, *reserve_shaped;
    if (self->end_of != NULL)
        return wrong("a queue is initialised once");
    if ((keywords != NULL && PyDict_GET_SIZE(keywords))
        || !PyArg_ParseTuple(args, "spO!O", &backfill, &shortest_first, &PyDict_Type, &reservations, &reserve_shaped))
        return PyErr_Occurred() ? -1 : wrong("a queue takes no keywords");
    self->backfill = strcmp(backfill, "easy") == 0 ? EASY : strcmp(backfill, "fill") == 0 ? FILL : NONE;
    self->shortest_first = (char)shortest_first;
    self->avoid = Py_NewRef(zero);
    self->reservations = Py_NewRef(reservations);
    self->reserve_shaped = Py_NewRef(reserve_shaped);
    self->shadow = -Py_HUGE_VAL;
    self->whole_pass = 1;
    return (self->end_of = PyDict_New()) == NULL ? -1 : 0;
}

static int queue_traverse(Queue *self, visitproc visit, void *arg)
{
    Py_VISIT(self->reservations);
    Py_VISIT(self->reserve_shaped);
    return 0;
}

static int queue_clear(Queue *self)
{
    Py_CLEAR(self->reserve_shaped);
    return 0;
}

static void queue_dealloc(Queue *self)
{
    PyObject *key, *pointer;
    Py_ssize_t index, at = 0;
    PyObject_GC_UnTrack(self);
    for (index = self->queue.gone; index < self->queue.length; index++)
        free_entry(self->queue.items[index]);
    while (self->end_of != NULL && PyDict_Next(self->end_of, &at, &key, &pointer))
        free_end(PyLong_AsVoidPtr(pointer));
    PyMem_Free(self->queue.items);
    PyMem_Free(self->by_estimate.items);
    PyMem_Free(self->ends.items);
    PyMem_Free(self->fresh.items);
    Py_XDECREF(self->avoid);
    Py_XDECREF(self->reservations);
    Py_XDECREF(self->reserve_shaped);
    Py_XDECREF(self->end_of);
    Py_TYPE(self)->tp_free(self);
}

static Py_ssize_t queue_length(Queue *self)
{
    return COUNT(&self->queue);
}

static PyMethodDef queue_methods[] = {
    {"add", (PyCFunction)(void (*)(void))queue_add, METH_FASTCALL, "A job waits."},
    {"remove", (PyCFunction)queue_remove, METH_O, "A waiting job was withdrawn."},
    {"rescore", (PyCFunction)queue_rescore, METH_O, "Computes all scores again."},
    {"hold", (PyCFunction)(void (*)(void))queue_hold, METH_FASTCALL, "A job holds units until a date."},
    {"announce_end", (PyCFunction)(void (*)(void))queue_announce_end, METH_FASTCALL, "A job has ended; its event is still to come."},
    {"ended", (PyCFunction)queue_ended, METH_O, "A job is over."},
    {"look_again", (PyCFunction)queue_look_again, METH_NOARGS, "Any waiting job might start."},
    {"ends", (PyCFunction)queue_ends, METH_NOARGS, "The expected ends in order."},
    {"first", (PyCFunction)(void (*)(void))queue_first, METH_FASTCALL, "The first job to start."},
    {"next", (PyCFunction)queue_next, METH_O, "The next job to start."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef queue_members[] = {
    {"aside", T_BOOL, offsetof(Queue, aside), READONLY, "The job to start must not delay the reservation."},
    {"avoid", T_OBJECT, offsetof(Queue, avoid), READONLY, "The units to leave alone."},
    {NULL, 0, 0, 0, NULL},
};

static PySequenceMethods queue_sequence = {.sq_length = (lenfunc)queue_length};

static PyTypeObject QueueType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pilothouse.policies._backfill_queue.BackfillQueue",
    .tp_basicsize = sizeof(Queue),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Waiting jobs, and the passes of backfilling.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)queue_init,
    .tp_dealloc = (destructor)queue_dealloc,
    .tp_traverse = (traverseproc)queue_traverse,
    .tp_clear = (inquiry)queue_clear,
    .tp_methods = queue_methods,
    .tp_members = queue_members,
    .tp_as_sequence = &queue_sequence,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_backfill_queue", "The backfill queue in C.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__backfill_queue(void)
{
    PyObject *self;
    text_id = PyUnicode_InternFromString("id");
    text_shape = PyUnicode_InternFromString("shape");
    text_nodes = PyUnicode_InternFromString("nodes");
    zero = PyLong_FromLong(0);
    if (!text_id || !text_shape || !text_nodes || !zero || PyType_Ready(&QueueType) < 0)
        return NULL;
    if ((self = PyModule_Create(&module)) != NULL && PyModule_AddObjectRef(self, "BackfillQueue", (PyObject *)&QueueType) < 0)
        Py_CLEAR(self);
    return self;
}
