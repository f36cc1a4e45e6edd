/* The agenda that steps as SimGrid's clock does, in C: the twin of PlainSteppedAgenda in stepped_agenda.py, which is its
 * oracle and says what it does and why. Same numbers, same dates to the last bit: every sum and difference is computed in
 * the same order, so this file must not be compiled with contracted floating-point operations.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <structmember.h>

#define PRECISION_S 1e-9
#define WORK_PRECISION 1e-14
#define MOST_STEPS_KEPT 100000

/* An action, or an alarm: of that only the date, the number and what to call count. */
typedef struct {
    double left, rate, next_rate;
    long long number, place;
    Py_ssize_t seen;
    PyObject *callback, *argument;
} Action;

typedef struct {
    double date;
    Action *action;
} Due;

typedef struct {
    Due *items;
    Py_ssize_t count, room;
} Heap;

typedef struct {
    PyObject_HEAD
    PyObject *now;       /* the date as Python sees it */
    PyObject *cancelled; /* a set of numbers */
    double date;
    long long number;
    Heap actions, alarms;
    Heap near; /* a list: what may end in this step, in the order in which it came out of the heap (in place of dates) */
    double *steps;
    Py_ssize_t step_count, step_room;
} Agenda;

/* ---- a heap by date and number */

static int is_before(const Due *one, const Due *other)
{
    return one->date < other->date || (one->date == other->date && one->action->number < other->action->number);
}

static void sift_up(Due *items, Py_ssize_t place)
{
    Due moved = items[place];
    while (place > 0 && is_before(&moved, &items[(place - 1) / 2])) {
        items[place] = items[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    items[place] = moved;
}

static void sift_down(Due *items, Py_ssize_t count, Py_ssize_t place)
{
    Due moved = items[place];
    for (;;) {
        Py_ssize_t child = 2 * place + 1;
        if (child >= count)
            break;
        if (child + 1 < count && is_before(&items[child + 1], &items[child]))
            child++;
        if (!is_before(&items[child], &moved))
            break;
        items[place] = items[child];
        place = child;
    }
    items[place] = moved;
}

static int make_room(Heap *heap)
{
    if (heap->count == heap->room) {
        Py_ssize_t room = heap->room ? 2 * heap->room : 64;
        Due *items = PyMem_Realloc(heap->items, (size_t)room * sizeof(Due));
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        heap->items = items;
        heap->room = room;
    }
    return 0;
}

static int push(Heap *heap, double date, Action *action)
{
    if (make_room(heap))
        return -1;
    heap->items[heap->count].date = date;
    heap->items[heap->count].action = action;
    sift_up(heap->items, heap->count++);
    return 0;
}

static Due pop(Heap *heap)
{
    Due first = heap->items[0];
    heap->items[0] = heap->items[--heap->count];
    if (heap->count)
        sift_down(heap->items, heap->count, 0);
    return first;
}

static void drop(Action *action)
{
    Py_DECREF(action->callback);
    Py_DECREF(action->argument);
    PyMem_Free(action);
}

/* ---- the clock */

static int set_date(Agenda *a, double date)
{
    PyObject *now = PyFloat_FromDouble(date), *before = a->now;
    if (now == NULL)
        return -1;
    a->date = date;
    a->now = now;
    Py_XDECREF(before);
    return 0;
}

static int note_step(Agenda *a, double step)
{
    if (a->step_count == a->step_room) {
        Py_ssize_t room = a->step_room ? 2 * a->step_room : 1024;
        double *steps = PyMem_Realloc(a->steps, (size_t)room * sizeof(double));
        if (steps == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        a->steps = steps;
        a->step_room = room;
    }
    a->steps[a->step_count++] = step;
    return 0;
}

static double horizon_of(double date) { return date + 1.5 * PRECISION_S + date * 1e-13; }

static double remainder_of(const Action *action) { return action->rate ? action->left / action->rate : action->left; }

static int was_taken_back(Agenda *a, long long number)
{
    PyObject *key;
    int found;
    if (!PySet_GET_SIZE(a->cancelled))
        return 0;
    key = PyLong_FromLongLong(number);
    if (key == NULL)
        return -1;
    found = PySet_Discard(a->cancelled, key);
    Py_DECREF(key);
    return found;
}

static void catch_up(Agenda *a, Action *action)
{
    double left = action->left, rate = action->rate;
    const double *step = a->steps + action->seen, *end = a->steps + a->step_count;
    if (rate)
        for (; step < end; step++)
            left -= *step * rate;
    else
        for (; step < end; step++)
            left -= *step;
    action->left = left;
    action->seen = a->step_count;
}

/* Takes one step off. 1: the action has ended; 0: it is back in the heap; -1: an exception, and it is gone. */
static int reduce(Agenda *a, Action *action, double step)
{
    double seconds;
    action->seen++;
    if (action->rate) {
        action->left -= action->rate * step;
        if (action->left < WORK_PRECISION)
            return 1;
        seconds = action->left / action->rate;
    }
    else {
        action->left -= step;
        seconds = action->left;
        if (seconds < PRECISION_S) {
            if (!action->next_rate || isinf(action->next_rate))
                return 1;
            action->left = 1.0;
            action->rate = action->next_rate;
            seconds = 1.0 / action->next_rate;
        }
    }
    if (push(&a->actions, a->date + seconds, action)) {
        drop(action);
        return -1;
    }
    return 0;
}

static int forget_steps(Agenda *a)
{
    Py_ssize_t i;
    for (i = 0; i < a->actions.count; i++) {
        Due *due = &a->actions.items[i];
        catch_up(a, due->action);
        due->action->seen = 0;
        due->date = a->date + remainder_of(due->action);
    }
    for (i = a->actions.count / 2; i-- > 0;)
        sift_down(a->actions.items, a->actions.count, i);
    a->step_count = 0;
    return 0;
}

/* Adds what ended to a list, with its date; lets go of it in any case. */
static int hand_out(PyObject *ended, double date, Action *action)
{
    PyObject *when = PyFloat_FromDouble(date), *number = PyLong_FromLongLong(action->number), *entry = NULL;
    int failed = -1;
    if (when != NULL && number != NULL)
        entry = PyTuple_Pack(4, when, number, action->callback, action->argument);
    if (entry != NULL)
        failed = PyList_Append(ended, entry);
    Py_XDECREF(when);
    Py_XDECREF(number);
    Py_XDECREF(entry);
    drop(action);
    return failed;
}

/* ---- steps */

static int by_place(const void *one, const void *other)
{
    const Due *a = one, *b = other;
    if (a->action->place != b->action->place)
        return a->action->place < b->action->place ? -1 : 1;
    return a->date < b->date ? -1 : a->date > b->date;
}

static int gather(Agenda *a, double horizon)
{
    while (a->actions.count && a->actions.items[0].date <= horizon) {
        Action *action = pop(&a->actions).action;
        int gone = was_taken_back(a, action->number);
        if (!gone) {
            catch_up(a, action);
            if (!make_room(&a->near)) {
                a->near.items[a->near.count].date = (double)a->near.count;
                a->near.items[a->near.count++].action = action;
                continue;
            }
            gone = -1;
        }
        drop(action);
        if (gone < 0)
            return -1;
    }
    return 0;
}

static double shortest(const Heap *near)
{
    double least = INFINITY;
    Py_ssize_t i;
    for (i = 0; i < near->count; i++)
        least = fmin(least, remainder_of(near->items[i].action));
    return least > 0.0 ? least : 0.0;
}

/* Takes a step off all that are near. */
static int reduce_near(Agenda *a, double step, PyObject *ended)
{
    Heap *near = &a->near;
    Py_ssize_t i, count = near->count;
    int failed = 0;
    if (count > 1)
        qsort(near->items, (size_t)count, sizeof(Due), by_place);
    near->count = 0;
    for (i = 0; i < count; i++) {
        Action *action = near->items[i].action;
        int over = failed ? -1 : reduce(a, action, step);
        if (failed)
            drop(action);
        else if (over)
            failed = over < 0 || hand_out(ended, a->date, action);
    }
    return failed ? -1 : 0;
}

/* The date of the next action or alarm, those that were taken back left out; inf: there is none. */
static int next_due(Agenda *a, double *date)
{
    Heap *heaps[] = {&a->actions, &a->alarms};
    int i;
    *date = INFINITY;
    for (i = 0; i < 2; i++) {
        while (heaps[i]->count) {
            int gone = was_taken_back(a, heaps[i]->items[0].action->number);
            if (gone < 0)
                return -1;
            if (!gone)
                break;
            drop(pop(heaps[i]).action);
        }
        if (heaps[i]->count && heaps[i]->items[0].date < *date)
            *date = heaps[i]->items[0].date;
    }
    return 0;
}

static PyObject *step(Agenda *a, PyObject *unused)
{
    PyObject *ended = PyList_New(0);
    double next, date, step;
    (void)unused;
    if (ended == NULL)
        return NULL;
    while (!PyList_GET_SIZE(ended)) {
        if (next_due(a, &next))
            goto failed;
        if (isinf(next))
            break;
        date = a->alarms.count ? a->alarms.items[0].date : INFINITY;
        step = fmax(0.0, date - a->date);
        if (a->actions.count && a->actions.items[0].date <= horizon_of(date)) {
            if (gather(a, horizon_of(a->actions.items[0].date)))
                goto failed;
            step = fmin(step, shortest(&a->near));
        }
        if (set_date(a, a->date + step) || note_step(a, step))
            goto failed;
        while (a->alarms.count && a->alarms.items[0].date <= a->date) {
            Due alarm = pop(&a->alarms);
            int gone = was_taken_back(a, alarm.action->number);
            if (gone)
                drop(alarm.action);
            if (gone < 0 || (!gone && hand_out(ended, alarm.date, alarm.action)))
                goto failed;
        }
        if (reduce_near(a, step, ended))
            goto failed;
        if (a->step_count > MOST_STEPS_KEPT)
            forget_steps(a);
    }
    return ended;
failed:
    Py_DECREF(ended);
    return NULL;
}

/* ---- entries */

static Action *new_action(Agenda *a, PyObject *callback, PyObject *argument, double left)
{
    Action *action = PyMem_Malloc(sizeof(Action));
    if (action == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    action->left = left;
    action->rate = action->next_rate = 0.0;
    action->number = action->place = ++a->number;
    action->seen = a->step_count;
    action->callback = Py_NewRef(callback);
    action->argument = Py_NewRef(argument);
    return action;
}

static PyObject *enter(Heap *heap, double date, Action *action)
{
    long long number = action->number;
    if (push(heap, date, action)) {
        drop(action);
        return NULL;
    }
    return PyLong_FromLongLong(number);
}

/* Reads numbers, a callback and perhaps an argument. */
static int read_entry(PyObject *const *given, Py_ssize_t count, Py_ssize_t numbers, double *values, PyObject **argument)
{
    Py_ssize_t i;
    if (count != numbers + 1 && count != numbers + 2) {
        PyErr_Format(PyExc_TypeError, "expected %zd or %zd arguments, got %zd", numbers + 1, numbers + 2, count);
        return -1;
    }
    for (i = 0; i < numbers; i++) {
        values[i] = PyFloat_AsDouble(given[i]);
        if (values[i] == -1.0 && PyErr_Occurred())
            return -1;
    }
    *argument = count == numbers + 2 ? given[numbers + 1] : Py_None;
    return 0;
}

static PyObject *enter_timer(Agenda *a, double seconds, PyObject *callback, PyObject *argument)
{
    Action *action = new_action(a, callback, argument, seconds);
    return action == NULL ? NULL : enter(&a->actions, a->date + seconds, action);
}

static PyObject *after(Agenda *a, PyObject *const *given, Py_ssize_t count)
{
    double seconds;
    PyObject *argument;
    return read_entry(given, count, 1, &seconds, &argument) ? NULL : enter_timer(a, seconds, given[1], argument);
}

static PyObject *at(Agenda *a, PyObject *const *given, Py_ssize_t count)
{
    double date;
    PyObject *argument;
    return read_entry(given, count, 1, &date, &argument) ? NULL : enter_timer(a, date - a->date, given[1], argument);
}

static PyObject *alarm_at(Agenda *a, PyObject *const *given, Py_ssize_t count)
{
    double seconds;
    PyObject *argument;
    Action *action;
    if (read_entry(given, count, 1, &seconds, &argument) || (action = new_action(a, given[1], argument, seconds)) == NULL)
        return NULL;
    return enter(&a->alarms, a->date + seconds, action);
}

static PyObject *transfer(Agenda *a, PyObject *const *given, Py_ssize_t count)
{
    double values[2], seconds;
    PyObject *argument;
    Action *action;
    if (read_entry(given, count, 2, values, &argument) || (action = new_action(a, given[2], argument, values[0])) == NULL)
        return NULL;
    seconds = values[0];
    if (values[0] >= PRECISION_S)
        action->next_rate = values[1];
    else if (isinf(values[1]))
        action->left = seconds = 0.0;
    else {
        action->left = 1.0;
        action->rate = values[1];
        seconds = 1.0 / values[1];
    }
    return enter(&a->actions, a->date + seconds, action);
}

static PyObject *work(Agenda *a, PyObject *args, PyObject *named)
{
    static char *names[] = {"amount", "rate", "callback", "argument", "place", NULL};
    double amount, rate;
    PyObject *callback, *argument = Py_None;
    long long place = 0;
    Action *action;
    if (!PyArg_ParseTupleAndKeywords(args, named, "ddO|O$L", names, &amount, &rate, &callback, &argument, &place))
        return NULL;
    if (rate == 0.0) {
        PyErr_SetString(PyExc_ZeroDivisionError, "work at a rate of zero");
        return NULL;
    }
    action = new_action(a, callback, argument, amount);
    if (action == NULL)
        return NULL;
    if (place)
        action->place = place;
    if (isinf(rate))
        action->left = 0.0;
    else
        action->rate = rate;
    return enter(&a->actions, a->date + amount / rate, action);
}

static PyObject *passes(Agenda *a, PyObject *const *given, Py_ssize_t count)
{
    double latency, last_step, end, bandwidth;
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "expected 2 arguments, got %zd", count);
        return NULL;
    }
    latency = PyFloat_AsDouble(given[0]);
    bandwidth = PyFloat_AsDouble(given[1]);
    if (PyErr_Occurred())
        return NULL;
    if (bandwidth == 0.0) {
        PyErr_SetString(PyExc_ZeroDivisionError, "a bandwidth of zero");
        return NULL;
    }
    last_step = 1.0 / bandwidth;
    end = a->date + latency + last_step;
    if ((a->actions.count && a->actions.items[0].date <= horizon_of(end)) ||
        (a->alarms.count && a->alarms.items[0].date <= horizon_of(end)) || latency < PRECISION_S || last_step == 0.0 ||
        a->step_count >= MOST_STEPS_KEPT)
        Py_RETURN_FALSE;
    if (set_date(a, end) || note_step(a, latency) || note_step(a, last_step))
        return NULL;
    Py_RETURN_TRUE;
}

static PyObject *place(Agenda *a, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLongLong(++a->number);
}

static PyObject *cancel(Agenda *a, PyObject *number)
{
    if (PySet_Add(a->cancelled, number))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *was_cancelled(Agenda *a, PyObject *number)
{
    int found = PySet_Discard(a->cancelled, number);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyObject *next_date(Agenda *a, PyObject *unused)
{
    double date;
    (void)unused;
    return next_due(a, &date) ? NULL : PyFloat_FromDouble(date);
}

/* ---- the type */

static int visit_heap(const Heap *heap, visitproc visit, void *arg)
{
    Py_ssize_t i;
    for (i = 0; i < heap->count; i++) {
        Py_VISIT(heap->items[i].action->callback);
        Py_VISIT(heap->items[i].action->argument);
    }
    return 0;
}

static int traverse(Agenda *a, visitproc visit, void *arg)
{
    int result = visit_heap(&a->actions, visit, arg);
    if (!result)
        result = visit_heap(&a->alarms, visit, arg);
    if (!result)
        result = visit_heap(&a->near, visit, arg);
    Py_VISIT(a->cancelled);
    return result;
}

static void clear_heap(Heap *heap)
{
    while (heap->count)
        drop(heap->items[--heap->count].action);
}

static int clear(Agenda *a)
{
    clear_heap(&a->actions);
    clear_heap(&a->alarms);
    clear_heap(&a->near);
    return 0;
}

static void dealloc(Agenda *a)
{
    PyObject_GC_UnTrack(a);
    clear(a);
    PyMem_Free(a->actions.items);
    PyMem_Free(a->alarms.items);
    PyMem_Free(a->near.items);
    PyMem_Free(a->steps);
    Py_CLEAR(a->now);
    Py_CLEAR(a->cancelled);
    Py_TYPE(a)->tp_free((PyObject *)a);
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *named)
{
    Agenda *a;
    if (PyTuple_GET_SIZE(args) || (named != NULL && PyDict_GET_SIZE(named))) {
        PyErr_SetString(PyExc_TypeError, "an agenda takes no arguments");
        return NULL;
    }
    a = (Agenda *)type->tp_alloc(type, 0);
    if (a == NULL)
        return NULL;
    a->cancelled = PySet_New(NULL);
    if (a->cancelled == NULL || set_date(a, 0.0)) {
        Py_DECREF(a);
        return NULL;
    }
    return (PyObject *)a;
}

static PyMethodDef methods[] = {
    {"at", (PyCFunction)(void (*)(void))at, METH_FASTCALL, "Enters a callback for a date."},
    {"after", (PyCFunction)(void (*)(void))after, METH_FASTCALL, "Enters a callback that many seconds from now."},
    {"work", (PyCFunction)(void (*)(void))work, METH_VARARGS | METH_KEYWORDS, "Enters a callback for the end of work."},
    {"transfer", (PyCFunction)(void (*)(void))transfer, METH_FASTCALL, "Enters a callback for when one byte has arrived."},
    {"alarm", (PyCFunction)(void (*)(void))alarm_at, METH_FASTCALL, "Enters a callback for an absolute date."},
    {"passes", (PyCFunction)(void (*)(void))passes, METH_FASTCALL, "Carries out a transfer that nothing comes near."},
    {"place", (PyCFunction)place, METH_NOARGS, "A place in the order of entry."},
    {"cancel", (PyCFunction)cancel, METH_O, "Takes back an entry that has not ended yet."},
    {"was_cancelled", (PyCFunction)was_cancelled, METH_O, "Whether an entry was taken back after it was handed out."},
    {"next_date", (PyCFunction)next_date, METH_NOARGS, "When the next entry is due; inf if there is none."},
    {"step", (PyCFunction)step, METH_NOARGS, "Steps until something ends; returns all that ended."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"now", T_OBJECT_EX, offsetof(Agenda, now), READONLY, "The date."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject agenda_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pilothouse.worlds.simulated.message_server._stepped.SteppedAgenda",
    .tp_basicsize = sizeof(Agenda),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_new = make,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
    .tp_clear = (inquiry)clear,
    .tp_methods = methods,
    .tp_members = members,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_stepped", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__stepped(void)
{
    PyObject *result;
    if (PyType_Ready(&agenda_type))
        return NULL;
    result = PyModule_Create(&module);
    if (result != NULL && PyModule_AddObjectRef(result, "SteppedAgenda", (PyObject *)&agenda_type)) {
        Py_DECREF(result);
        return NULL;
    }
    return result;
}
