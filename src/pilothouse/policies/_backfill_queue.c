/* The backfill queue in C: the twin of PlainBackfillQueue in backfill_queue.py, which is its oracle and documents it.
 *
 * Entries and ends are allocated once each; lists of pointers to them are kept sorted. A pass is a dialogue, so its state
 * (phase, list, place) is kept between first() and next().
 *
 * Where scores change as jobs wait, the queue is not sorted: age() evaluates the score of all entries at once, and a pass
 * looks for the smallest. Small powers are computed as products there, which may differ from pow() in the last digits; so
 * whatever is as good as equal to the smallest, and what may be started, is then evaluated exactly as Python does it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <structmember.h>

/* glibc 2.29 gave these functions new versions, which differ only in how they report errors. The old ones are there in every
   glibc, so that one wheel fits old clusters too (RHEL 8 has 2.28). */
#if defined(__GLIBC__) && defined(__x86_64__)
#define OLD_VERSION "@GLIBC_2.2.5"
#elif defined(__GLIBC__) && defined(__aarch64__)
#define OLD_VERSION "@GLIBC_2.17"
#endif
#ifdef OLD_VERSION
__asm__(".symver exp,exp" OLD_VERSION);
__asm__(".symver log,log" OLD_VERSION);
__asm__(".symver log2,log2" OLD_VERSION);
__asm__(".symver pow,pow" OLD_VERSION);
#endif

#pragma GCC optimize("O3")

/* `beside`: how many units must be left over if the job is to leave the reservation alone. */
typedef struct {
    double score, estimate;
    long long number, units, beside;
    PyObject *job, *job_id;
    int shaped;
    /* Where scores age: its place in the queue, and the last age() for which `score` was computed exactly. */
    Py_ssize_t row;
    long long exact;
} Entry;

/* One operation of a score that ages; see score.py. */
typedef struct {
    char code;
    double argument;
} Operation;

enum { MOST_CONSTANTS = 8, MOST_DEPTH = 16, CHUNK = 128 };
static const double NEARLY_EQUAL = 1e-12, LEAST_SIZE = 1e-280;

/* Without a job it is over. It stays in the list until those before it are over too, or until half of the list is: on wide
 * machines most jobs end early, when their ends are somewhere in the middle. */
typedef struct {
    double date;
    long long number, units;
    PyObject *job_id;
    int announced;
} End;

/* What a search looks at before it looks at an entry: its units and its estimate, rounded down. */
typedef struct {
    float units, estimate;
} Bounds;

/* A list of pointers of which the first `gone` are empty. In long queues most of a search is waiting for memory, so a list
 * that is searched (`bounded`) keeps the bounds of its entries side by side. */
typedef struct {
    void **items;
    Bounds *bounds;
    Py_ssize_t gone, length, room;
    int bounded;
} List;

enum { NONE, FILL, EASY };
enum { IDLE, HEADS, OVERTAKING };

typedef struct {
    PyObject_HEAD
    char aside, shortest_first, whole_pass, products;
    int backfill, phase;
    PyObject *avoid, *reservations, *reserve_shaped, *end_of;
    List queue, by_estimate, ends, fresh, *from;
    Py_ssize_t at, ends_over;
    long long numbers, unseen, extra, free;
    double shadow, now;
    Entry *asked;
    /* Where scores age. Columns: dates of submission, constants of the operations, scores; one row for each entry. */
    PyObject *constants_of;
    Operation *operations;
    Py_ssize_t operation_count, constant_count, column_room;
    double *columns[MOST_CONSTANTS + 2];
    long long aged;
    double aged_at;
    /* The smallest score of each CHUNK rows, if it is known. */
    double *least_of;
    Py_ssize_t least_room;
    int leasts_known;
    Entry *head;
    List candidates;
} Queue;

static PyObject *text_id, *text_shape, *text_nodes, *text_submitted_at, *zero;

/* ---- lists */

#define COUNT(list) ((list)->length - (list)->gone)

static float rounded_down(double value)
{
    float close = (float)value;
    return close > value ? nextafterf(close, -HUGE_VALF) : close;
}

static float rounded_up(double value)
{
    return -rounded_down(-value);
}

static int grow(List *list)
{
    size_t room = list->room ? 2 * (size_t)list->room : 64;
    void **items = PyMem_Realloc(list->items, room * sizeof *items);
    Bounds *bounds = NULL;
    if (items != NULL)
        list->items = items;
    if (list->bounded && (bounds = PyMem_Realloc(list->bounds, room * sizeof *bounds)) != NULL)
        list->bounds = bounds;
    if (items == NULL || (list->bounded && bounds == NULL))
        return PyErr_NoMemory(), -1;
    list->room = (Py_ssize_t)room;
    return 0;
}

/* Moves `count` items from place `from` on to place `to`. */
static void move(List *list, Py_ssize_t to, Py_ssize_t from, Py_ssize_t count)
{
    memmove(list->items + to, list->items + from, (size_t)count * sizeof *list->items);
    if (list->bounded)
        memmove(list->bounds + to, list->bounds + from, (size_t)count * sizeof *list->bounds);
}

static void put(List *list, Py_ssize_t at, void *item)
{
    list->items[at] = item;
    if (list->bounded) {
        const Entry *entry = item;
        list->bounds[at] = (Bounds){rounded_down((double)entry->units), rounded_down(entry->estimate)};
    }
}

static int insert(List *list, Py_ssize_t at, void *item)
{
    if (list->length == list->room) {
        if (list->gone > list->room / 2) {
            move(list, 0, list->gone, COUNT(list));
            at -= list->gone;
            list->length -= list->gone;
            list->gone = 0;
        }
        else if (grow(list))
            return -1;
    }
    move(list, at + 1, at, list->length - at);
    list->length++;
    put(list, at, item);
    return 0;
}

/* Moves those before it up, or those behind it down, whichever are fewer. */
static void take_out(List *list, Py_ssize_t at)
{
    Py_ssize_t before = at - list->gone, behind = list->length - at - 1;
    if (before <= behind || !before) {
        move(list, list->gone + 1, list->gone, before);
        list->gone++;
    }
    else {
        move(list, at, at + 1, behind);
        list->length--;
    }
    if (list->gone == list->length)
        list->gone = list->length = 0;
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
    Py_XDECREF(end->job_id);
    PyMem_Free(end);
}

#define AGES(queue) ((queue)->operations != NULL)
#define SCORES(queue) ((queue)->columns[(queue)->constant_count + 1])

enum { LANES = 8 };

static double least_of_rows(const double *scores, Py_ssize_t count)
{
    double lanes[LANES], least = Py_HUGE_VAL;
    Py_ssize_t row, lane;
    for (lane = 0; lane < LANES; lane++)
        lanes[lane] = Py_HUGE_VAL;
    for (row = 0; row + LANES <= count; row += LANES)
        for (lane = 0; lane < LANES; lane++)
            lanes[lane] = scores[row + lane] < lanes[lane] ? scores[row + lane] : lanes[lane];
    for (; row < count; row++)
        least = scores[row] < least ? scores[row] : least;
    for (lane = 0; lane < LANES; lane++)
        least = lanes[lane] < least ? lanes[lane] : least;
    return least;
}

/* The smallest score of the rows around this one has changed. */
static void note_least(Queue *self, Py_ssize_t row)
{
    Py_ssize_t first = row - row % CHUNK, rest = self->queue.length - first;
    if (self->leasts_known && rest > 0)
        self->least_of[row / CHUNK] = least_of_rows(SCORES(self) + first, rest < CHUNK ? rest : CHUNK);
}

/* The last row takes the place of this one. */
static void drop_row(Queue *self, Entry *entry)
{
    Py_ssize_t last = --self->queue.length, row = entry->row, column;
    Entry *moved = self->queue.items[last];
    self->queue.items[row] = moved;
    moved->row = row;
    for (column = 0; column < self->constant_count + 2; column++)
        self->columns[column][row] = self->columns[column][last];
    note_least(self, row);
    note_least(self, last);
    if (self->head == entry)
        self->head = NULL;
}

/* An entry leaves the queue: its job was started or withdrawn. */
static void forget(Queue *self, Entry *entry)
{
    if (AGES(self))
        drop_row(self, entry);
    else
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

/* ---- scores that age */

/* Applies an operation as Python does, with the same functions of the C library; 1: Python would raise an exception, or get a
 * complex number. */
static int apply(const Operation *operation, double *a, double b)
{
    double from = *a;
    switch (operation->code) {
    case '+': *a += b; return 0;
    case '-': *a -= b; return 0;
    case '*': *a *= b; return 0;
    case '/': *a /= b; return b == 0.0;
    case 'n': *a = -*a; return 0;
    case '^': b = operation->argument; *a = pow(from, b); break;
    case 's': *a = sqrt(from); break;
    case 'e': *a = exp(from); break;
    case 'l': *a = log(from); break;
    case '2': *a = log2(from); break;
    case 'd': *a = log10(from); break;
    }
    /* Overflow, a pole, or an argument for which there is no value. */
    return isnan(*a) ? !isnan(from) : isinf(*a) && isfinite(from);
}

#define IS_BINARY(code) ((code) == '+' || (code) == '-' || (code) == '*' || (code) == '/')

/* The score of an entry at the date of the last age(), to the last digit. */
static double exact_score(Queue *self, Entry *entry)
{
    double stack[MOST_DEPTH], wait = self->aged_at - self->columns[0][entry->row];
    Py_ssize_t index, depth = 0;
    int undefined = isnan(self->columns[0][entry->row]);
    if (entry->exact == self->aged)
        return entry->score;
    entry->exact = self->aged;
    for (index = 0; index < self->operation_count && !undefined; index++) {
        const Operation *operation = self->operations + index;
        if (operation->code == 'w')
            stack[depth++] = wait;
        else if (operation->code == 'k')
            stack[depth++] = self->columns[1 + (int)operation->argument][entry->row];
        else if (IS_BINARY(operation->code)) {
            depth--;
            undefined = apply(operation, stack + depth - 1, stack[depth]);
        }
        else
            undefined = apply(operation, stack + depth - 1, 0.0);
    }
    entry->score = undefined ? -Py_HUGE_VAL : isnan(stack[0]) ? Py_HUGE_VAL : stack[0];
    return entry->score;
}

/* Applies an operation to `count` rows; `undefined` counts divisions by zero. */
static void apply_to_rows(const Operation *operation, double *a, const double *b, Py_ssize_t count, double *undefined)
{
    Py_ssize_t k;
    switch (operation->code) {
    case '+': for (k = 0; k < count; k++) a[k] += b[k]; return;
    case '-': for (k = 0; k < count; k++) a[k] -= b[k]; return;
    case '*': for (k = 0; k < count; k++) a[k] *= b[k]; return;
    case '/':
        for (k = 0; k < count; k++) {
            undefined[k] += b[k] == 0.0 ? 1.0 : 0.0;
            a[k] /= b[k];
        }
        return;
    case 'n': for (k = 0; k < count; k++) a[k] = -a[k]; return;
    case '2' - '0': for (k = 0; k < count; k++) a[k] *= a[k]; return;
    case '3' - '0': for (k = 0; k < count; k++) a[k] *= a[k] * a[k]; return;
    }
    for (k = 0; k < count; k++)
        if (apply(operation, a + k, 0.0))
            undefined[k] += 1.0;
}

/* Evaluates `count` rows from `row` on. */
static void score_rows(Queue *self, Py_ssize_t row, Py_ssize_t count)
{
    double stack[MOST_DEPTH][CHUNK], undefined[CHUNK] = {0.0}, odd[CHUNK], *scores = SCORES(self) + row;
    /* Each is in `stack`, or a column: that is copied only if it is to be changed. */
    const double *operands[MOST_DEPTH], *submitted = self->columns[0] + row;
    Py_ssize_t index, depth = 0, k;
    for (index = 0; index < self->operation_count; index++) {
        Operation operation = self->operations[index];
        if (operation.code == 'w') {
            for (k = 0; k < count; k++)
                stack[depth][k] = self->aged_at - submitted[k];
            operands[depth] = stack[depth];
            depth++;
        }
        else if (operation.code == 'k')
            operands[depth++] = self->columns[1 + (int)operation.argument] + row;
        else {
            depth -= IS_BINARY(operation.code);
            if (operation.code == '^' && self->products && (operation.argument == 2.0 || operation.argument == 3.0))
                operation.code = (char)operation.argument;
            if (operands[depth - 1] != stack[depth - 1])
                memcpy(stack[depth - 1], operands[depth - 1], (size_t)count * sizeof(double));
            operands[depth - 1] = stack[depth - 1];
            apply_to_rows(&operation, stack[depth - 1], IS_BINARY(operation.code) ? operands[depth] : NULL, count, undefined);
        }
    }
    /* Without branches, so that it is done for several rows at once. */
    for (k = 0; k < count; k++) {
        double score = operands[0][k], size = fabs(score);
        double small = size > LEAST_SIZE ? 0.0 : -1.0, large = size < 1.0 / LEAST_SIZE ? 0.0 : -1.0;
        scores[k] = undefined[k] > 0.0 ? -Py_HUGE_VAL : score;
        odd[k] = undefined[k] > 0.0 ? 0.0 : small + large;
    }
    if (least_of_rows(odd, count) == 0.0)
        return;
    /* What is not a number, or so large or small that digits were lost. */
    for (k = 0; k < count; k++)
        if (odd[k] != 0.0)
            scores[k] = exact_score(self, self->queue.items[row + k]);
}

static PyObject *queue_age(Queue *self, PyObject *date)
{
    Py_ssize_t row, rest, chunks = self->queue.length / CHUNK + 1;
    double before = self->aged_at;
    if (!AGES(self))
        return wrong("the scores of this queue do not age"), NULL;
    if (as_double(date, &self->aged_at))
        return NULL;
    self->whole_pass = 1;
    if (self->leasts_known && self->aged_at == before)
        Py_RETURN_NONE;
    if (chunks > self->least_room) {
        double *larger = PyMem_Realloc(self->least_of, (size_t)chunks * 2 * sizeof *larger);
        if (larger == NULL)
            return PyErr_NoMemory();
        self->least_of = larger;
        self->least_room = chunks * 2;
    }
    self->head = NULL;
    self->aged++;
    for (row = 0; (rest = self->queue.length - row) > 0; row += CHUNK) {
        rest = rest < CHUNK ? rest : CHUNK;
        score_rows(self, row, rest);
        self->least_of[row / CHUNK] = least_of_rows(SCORES(self) + row, rest);
    }
    self->leasts_known = 1;
    Py_RETURN_NONE;
}

/* Whether two entries have the same score at any date. */
static int same_request(const Queue *self, const Entry *one, const Entry *other)
{
    Py_ssize_t column;
    for (column = 0; column < self->constant_count + 1; column++)
        if (self->columns[column][one->row] != self->columns[column][other->row])
            return 0;
    return one->exact == other->exact;
}

/* What is as good as equal to a score. */
static double nearly(double score)
{
    return isinf(score) ? score : score + fabs(score) * NEARLY_EQUAL;
}

/* Whether an entry comes before the best one of those with nearly the same score. */
static int comes_first(Queue *self, Entry *entry, Entry *best)
{
    if (best == NULL)
        return 1;
    if (entry->number > best->number && same_request(self, best, entry))
        return 0;
    return before(exact_score(self, entry), entry->number, exact_score(self, best), best->number);
}

static Entry *smallest(Queue *self)
{
    const double *scores = SCORES(self), *leasts = self->leasts_known ? self->least_of : NULL;
    Py_ssize_t row, count = self->queue.length;
    double limit = nearly(leasts != NULL ? least_of_rows(leasts, (count + CHUNK - 1) / CHUNK) : least_of_rows(scores, count));
    Entry *best = NULL;
    for (row = 0; row < count; row++) {
        if (leasts != NULL && row % CHUNK == 0 && leasts[row / CHUNK] > limit)
            row += CHUNK - 1;
        else if (scores[row] <= limit && comes_first(self, self->queue.items[row], best))
            best = self->queue.items[row];
    }
    return best;
}

/* The first entry of a queue that is not empty. */
static Entry *head_of(Queue *self)
{
    if (!AGES(self))
        return self->queue.items[self->queue.gone];
    if (self->head == NULL)
        self->head = smallest(self);
    return self->head;
}

/* A new entry, whose score was computed by Python. */
static int add_row(Queue *self, Entry *entry)
{
    PyObject *submitted = PyObject_GetAttr(entry->job, text_submitted_at);
    PyObject *constants = submitted == NULL ? NULL : PyObject_CallOneArg(self->constants_of, entry->job);
    Py_ssize_t row = self->queue.length, column, count = self->constant_count;
    int failed = constants == NULL;
    if (!failed && row == self->column_room) {
        Py_ssize_t room = row ? 2 * row : 64;
        for (column = 0; !failed && column < count + 2; column++) {
            double *larger = PyMem_Realloc(self->columns[column], (size_t)room * sizeof(double));
            if ((failed = larger == NULL))
                PyErr_NoMemory();
            else
                self->columns[column] = larger;
        }
        self->column_room = failed ? self->column_room : room;
    }
    failed = failed || as_double(submitted, self->columns[0] + row);
    if (!failed && constants == Py_None) {
        /* It has no value, whatever the date. */
        for (column = 0; column < count + 1; column++)
            self->columns[column][row] = Py_NAN;
    }
    else if (!failed && (!PyTuple_Check(constants) || PyTuple_GET_SIZE(constants) != count))
        failed = wrong("constants are a tuple, one number for each");
    else
        for (column = 0; !failed && column < count; column++)
            failed = as_double(PyTuple_GET_ITEM(constants, column), self->columns[1 + column] + row);
    Py_XDECREF(submitted);
    Py_XDECREF(constants);
    if (failed || insert(&self->queue, row, entry))
        return -1;
    entry->row = row;
    entry->exact = self->aged;
    SCORES(self)[row] = entry->score;
    self->head = NULL;
    self->leasts_known = self->leasts_known && row / CHUNK < self->least_room;
    note_least(self, row);
    return 0;
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
        score, estimate, ++self->numbers, units, units * (nodes > 1 ? nodes : 1), Py_NewRef(args[0]), job_id, shaped, 0, 0
    };
    if ((AGES(self) ? add_row(self, entry) : insert_sorted(&self->queue, entry, BY_SCORE))
        || (self->shortest_first && insert_sorted(&self->by_estimate, entry, BY_ESTIMATE))
        || insert(&self->fresh, self->fresh.length, entry))
        return NULL;
    if (AGES(self) || head_of(self) == entry)
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

static void sort_by_score(List *list)
{
    Py_ssize_t index;
    qsort(list->items + list->gone, (size_t)COUNT(list), sizeof(void *), by_score);
    for (index = list->gone; list->bounded && index < list->length; index++)
        put(list, index, list->items[index]);
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
        if (AGES(self)) {
            SCORES(self)[index] = entry->score;
            entry->exact = self->aged;
            self->head = NULL;
            self->leasts_known = 0;
        }
    }
    if (COUNT(&self->queue) > 1 && !AGES(self))
        sort_by_score(&self->queue);
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

/* Removes the ends that are over: those at the front, or all of them. */
static void clear_ends(Queue *self)
{
    List *list = &self->ends;
    Py_ssize_t index = list->gone, kept = 0;
    int all = self->ends_over > COUNT(list) / 2;
    for (; index < list->length; index++) {
        End *end = list->items[index];
        if (end->job_id == NULL) {
            free_end(end);
            self->ends_over--;
        }
        else if (all)
            list->items[kept++] = end;
        else
            break;
    }
    list->gone = all ? 0 : index;
    if (all || index == list->length) {
        list->gone = 0;
        list->length = kept;
    }
}

static int release(Queue *self, End *end)
{
    int failed = PyDict_DelItem(self->end_of, end->job_id);
    if (self->backfill != EASY)
        free_end(end);
    else {
        Py_CLEAR(end->job_id);
        self->ends_over++;
        if (end == self->ends.items[self->ends.gone] || self->ends_over > COUNT(&self->ends) / 2)
            clear_ends(self);
    }
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
    Py_ssize_t index, count = 0;
    PyObject *ends = PyList_New(COUNT(&self->ends) - self->ends_over);
    for (index = self->ends.gone; ends != NULL && index < self->ends.length; index++) {
        const End *end = self->ends.items[index];
        PyObject *item;
        if (end->job_id == NULL)
            continue;
        if ((item = Py_BuildValue("(dO)", end->date, end->job_id)) == NULL) {
            Py_DECREF(ends);
            return NULL;
        }
        PyList_SET_ITEM(ends, count++, item);
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
    const Entry *head = head_of(self);
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
            if (end->job_id == NULL)
                continue;
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

static int ends_in_time(const Queue *self, const Entry *entry)
{
    return self->now + entry->estimate <= self->shadow && entry->estimate < Py_HUGE_VAL;
}

enum { TOGETHER = 64 };

/* What bounds rule out. */
typedef struct {
    float units, units_aside, estimate;
} Most;

static inline int is_possible(const Bounds *bounds, const Most *most)
{
    return (bounds->units <= most->units)
        & ((bounds->units <= most->units_aside) | (bounds->estimate <= most->estimate));
}

/* The next place from `at` on whose entry might overtake. */
static Py_ssize_t next_possible(const List *list, Py_ssize_t at, const Most *most)
{
    for (; at + TOGETHER <= list->length; at += TOGETHER) {
        int index, possible = 0;
        for (index = 0; index < TOGETHER; index++)
            possible |= is_possible(list->bounds + at + index, most);
        if (possible)
            break;
    }
    while (at < list->length && !is_possible(list->bounds + at, most))
        at++;
    return at;
}

static inline int may_overtake(const Queue *self, const Entry *entry, long long usable, long long extra)
{
    return entry->units <= usable && (entry->beside <= extra || ends_in_time(self, entry));
}

/* From where the pass stands, the next entry of a sorted list that may overtake. */
static Entry *next_in_order(Queue *self, long long usable, long long extra)
{
    const List *list = self->from;
    const Entry *head = head_of(self);
    const int is_long = list->bounded && list->length - self->at > TOGETHER;
    Most most = {0, 0, 0};
    Py_ssize_t at;
    if (is_long) {
        /* The sum of now and an estimate is rounded too. */
        double rounding = 1e-15 * (fabs(self->shadow) + fabs(self->now));
        most = (Most){rounded_up((double)usable), rounded_up((double)extra), rounded_up(self->shadow - self->now + rounding)};
    }
    for (at = self->at; at < list->length; at++) {
        if (is_long && (at = next_possible(list, at, &most)) == list->length)
            break;
        if (list->items[at] != head && may_overtake(self, list->items[at], usable, extra)) {
            self->at = at;
            return list->items[at];
        }
    }
    return NULL;
}

/* The entries of an unsorted queue that might overtake. */
static int find_candidates(Queue *self, long long usable, long long extra)
{
    List *list = &self->candidates;
    const Entry *head = head_of(self);
    Py_ssize_t row;
    list->gone = list->length = 0;
    for (row = 0; row < self->queue.length; row++) {
        Entry *entry = self->queue.items[row];
        if (may_overtake(self, entry, usable, extra) && entry != head && insert(list, list->length, entry))
            return -1;
    }
    return 0;
}

/* Of these the next one. In a pass there is ever less room: who may not overtake any more is dropped. */
static Entry *next_candidate(Queue *self, long long usable, long long extra)
{
    List *list = &self->candidates;
    const double *scores = SCORES(self);
    double least = Py_HUGE_VAL, limit;
    Py_ssize_t index, place = 0;
    Entry *best = NULL;
    for (index = 0; index < list->length;) {
        const Entry *entry = list->items[index];
        if (may_overtake(self, entry, usable, extra)) {
            least = scores[entry->row] < least ? scores[entry->row] : least;
            index++;
        }
        else
            list->items[index] = list->items[--list->length];
    }
    limit = nearly(least);
    for (index = 0; index < list->length; index++) {
        Entry *entry = list->items[index];
        if (scores[entry->row] <= limit && comes_first(self, entry, best)) {
            best = entry;
            place = index;
        }
    }
    if (best != NULL)
        list->items[place] = list->items[--list->length];
    return best;
}

/* From where the pass stands, the next job to start. */
static PyObject *overtake(Queue *self)
{
    const long long usable = self->free - self->unseen, extra = self->avoid == zero ? self->extra : LLONG_MAX;
    Entry *entry = NULL;
    if (usable > 0)
        entry = self->from == &self->candidates ? next_candidate(self, usable, extra) : next_in_order(self, usable, extra);
    return entry == NULL ? no_more(self) : ask(self, entry, !ends_in_time(self, entry));
}

/* The heads that fit, then the reservation. */
static PyObject *over_all(Queue *self)
{
    if (COUNT(&self->queue) == 0)
        return no_more(self);
    if (self->phase == HEADS) {
        Entry *head = head_of(self);
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
    if (AGES(self) && find_candidates(self, self->free - self->unseen, self->avoid == zero ? self->extra : LLONG_MAX))
        return NULL;
    self->from = self->shortest_first ? &self->by_estimate : AGES(self) ? &self->candidates : &self->queue;
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
    Py_ssize_t gone;
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
        gone = self->from == NULL ? 0 : self->from->gone;
        forget(self, entry);
        /* The list that is walked over may have lost the entry; then the next one took its place, or those before it moved. */
        if (self->from == &self->fresh || (self->from != NULL && self->from->gone > gone))
            self->at++;
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

/* Reads the operations of a score that ages, and checks that they can be carried out. */
static int read_program(Queue *self, PyObject *program)
{
    PyObject *operations = PyObject_GetAttrString(program, "operations"), *products, *count;
    Py_ssize_t index, depth = 0, deepest = 0;
    int failed = operations == NULL || !PyTuple_Check(operations);
    if (!failed) {
        self->operation_count = PyTuple_GET_SIZE(operations);
        self->operations = PyMem_Calloc((size_t)self->operation_count + 1, sizeof *self->operations);
        failed = self->operations == NULL;
    }
    products = failed ? NULL : PyObject_GetAttrString(program, "products");
    count = products == NULL ? NULL : PyObject_GetAttrString(program, "constant_count");
    self->constants_of = count == NULL ? NULL : PyObject_GetAttrString(program, "constants");
    failed = self->constants_of == NULL || (self->constant_count = PyLong_AsSsize_t(count)) < 0
        || self->constant_count > MOST_CONSTANTS;
    self->products = (char)(!failed && PyObject_IsTrue(products) == 1);
    for (index = 0; !failed && index < self->operation_count; index++) {
        Operation *operation = self->operations + index;
        int code;
        failed = !PyArg_ParseTuple(PyTuple_GET_ITEM(operations, index), "Cd", &code, &operation->argument);
        operation->code = (char)code;
        if (!failed && (code == 'w' || code == 'k'))
            depth++;
        else if (!failed && IS_BINARY(code))
            depth--;
        deepest = depth > deepest ? depth : deepest;
        failed = failed || depth < 1 || deepest > MOST_DEPTH
            || (code == 'k' && !(operation->argument >= 0 && operation->argument < self->constant_count))
            || code > 127 || strchr("wk+-*/n^sel2d", code) == NULL;
    }
    Py_XDECREF(operations);
    Py_XDECREF(products);
    Py_XDECREF(count);
    if ((failed || depth != 1) && !PyErr_Occurred())
        wrong("not the operations of a score");
    return PyErr_Occurred() ? -1 : 0;
}

static int queue_init(Queue *self, PyObject *args, PyObject *keywords)
{
    const char *backfill;
    int shortest_first;
    PyObject *reservations, *reserve_shaped, *program = Py_None;
    if (self->end_of != NULL)
        return wrong("a queue is initialised once");
    if ((keywords != NULL && PyDict_GET_SIZE(keywords))
        || !PyArg_ParseTuple(
            args, "spO!O|O", &backfill, &shortest_first, &PyDict_Type, &reservations, &reserve_shaped, &program))
        return PyErr_Occurred() ? -1 : wrong("a queue takes no keywords");
    if (program != Py_None && read_program(self, program))
        return -1;
    self->backfill = strcmp(backfill, "easy") == 0 ? EASY : strcmp(backfill, "fill") == 0 ? FILL : NONE;
    self->shortest_first = (char)shortest_first;
    self->queue.bounded = self->by_estimate.bounded = !AGES(self);
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
    Py_VISIT(self->constants_of);
    return 0;
}

static int queue_clear(Queue *self)
{
    Py_CLEAR(self->reserve_shaped);
    Py_CLEAR(self->constants_of);
    return 0;
}

static void queue_dealloc(Queue *self)
{
    PyObject *key, *pointer;
    Py_ssize_t index, at = 0;
    PyObject_GC_UnTrack(self);
    for (index = self->queue.gone; index < self->queue.length; index++)
        free_entry(self->queue.items[index]);
    for (index = self->ends.gone; index < self->ends.length; index++)
        free_end(self->ends.items[index]);
    while (self->backfill != EASY && self->end_of != NULL && PyDict_Next(self->end_of, &at, &key, &pointer))
        free_end(PyLong_AsVoidPtr(pointer));
    PyMem_Free(self->queue.items);
    PyMem_Free(self->queue.bounds);
    PyMem_Free(self->by_estimate.items);
    PyMem_Free(self->by_estimate.bounds);
    PyMem_Free(self->ends.items);
    PyMem_Free(self->fresh.items);
    PyMem_Free(self->candidates.items);
    PyMem_Free(self->operations);
    PyMem_Free(self->least_of);
    for (index = 0; index < MOST_CONSTANTS + 2; index++)
        PyMem_Free(self->columns[index]);
    Py_XDECREF(self->constants_of);
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
    {"age", (PyCFunction)queue_age, METH_O, "Computes all scores for a date."},
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
    {"extra", T_LONGLONG, offsetof(Queue, extra), READONLY, "How many units a job may take beside the reservation, if none are to be left alone."},
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
    text_submitted_at = PyUnicode_InternFromString("submitted_at");
    zero = PyLong_FromLong(0);
    if (!text_id || !text_shape || !text_nodes || !text_submitted_at || !zero || PyType_Ready(&QueueType) < 0)
        return NULL;
    if ((self = PyModule_Create(&module)) != NULL && PyModule_AddObjectRef(self, "BackfillQueue", (PyObject *)&QueueType) < 0)
        Py_CLEAR(self);
    return self;
}
