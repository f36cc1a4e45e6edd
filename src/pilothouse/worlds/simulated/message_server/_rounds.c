/* The kernel of actors in C: the twin of Rounds in rounds.py, which is its oracle and says what it does.
 *
 * Kernel(agenda, (sleep, send, post, receive, spawn, turn, exchange), most_turns)
 *     start(actor)     makes an actor ready
 *     stop()           ends advance() before the next turn
 *     advance(reply)   runs until an actor wants to exchange a batch, which it returns, or until nothing is due: None.
 *                      The reply to that batch is handed over with the next call.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum { SLEEP, SEND, POST, RECEIVE, SPAWN, TURN, EXCHANGE, KINDS };

typedef struct {
    PyObject_HEAD
    PyObject *agenda, *kinds, *ready, *start, *delivered;
    PyObject *running; /* (actor, value) of this turn */
    PyObject *waits;   /* actors of this turn and their commands, one after the other */
    PyObject *asking;  /* the actor that waits for a reply */
    Py_ssize_t index;
    long long turns, most_turns;
    double since;
    int over;
} Kernel;

static PyObject *s_now, *s_receiver, *s_waiting, *s_append, *s_popleft, *s_after, *s_transfer, *s_passes, *s_step,
    *s_was_cancelled;

static PyObject *kind_of(Kernel *k, int number) { return PyTuple_GET_ITEM(k->kinds, number); }

static int push_ready(Kernel *k, PyObject *actor, PyObject *value)
{
    PyObject *pair = PyTuple_Pack(2, actor, value);
    int failed = pair == NULL || PyList_Append(k->ready, pair);
    Py_XDECREF(pair);
    return failed ? -1 : 0;
}

static int number_of(PyObject *owner, PyObject *name, double *value)
{
    PyObject *found = PyObject_GetAttr(owner, name);
    if (found == NULL)
        return -1;
    *value = PyFloat_AsDouble(found);
    Py_DECREF(found);
    return *value == -1.0 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *entry_part(PyObject *entry, Py_ssize_t index)
{
    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 4) {
        PyErr_SetString(PyExc_TypeError, "an entry of an agenda has four parts");
        return NULL;
    }
    return PyTuple_GET_ITEM(entry, index);
}

static int costs(PyObject *price, double *latency, double *bandwidth)
{
    if (!PyTuple_Check(price) || PyTuple_GET_SIZE(price) < 2) {
        PyErr_SetString(PyExc_TypeError, "a price has a latency and a bandwidth");
        return -1;
    }
    *latency = PyFloat_AsDouble(PyTuple_GET_ITEM(price, 0));
    *bandwidth = PyFloat_AsDouble(PyTuple_GET_ITEM(price, 1));
    if (!*bandwidth) {
        PyErr_SetString(PyExc_ZeroDivisionError, "a bandwidth of zero");
        return -1;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* 1: the message has arrived, nothing else is near; 0: it must be entered; -1: an exception. */
static int passes(Kernel *k, PyObject *price)
{
    PyObject *result;
    int truth;
    double latency, bandwidth;
    if (costs(price, &latency, &bandwidth))
        return -1;
    result = PyObject_CallMethodObjArgs(
        k->agenda, s_passes, PyTuple_GET_ITEM(price, 0), PyTuple_GET_ITEM(price, 1), NULL);
    if (result == NULL)
        return -1;
    truth = PyObject_IsTrue(result);
    Py_DECREF(result);
    return truth;
}

static int transfer(Kernel *k, PyObject *price, PyObject *first, PyObject *first_value, PyObject *second, PyObject *value)
{
    double latency, bandwidth;
    PyObject *both, *result;
    if (costs(price, &latency, &bandwidth))
        return -1;
    both = PyTuple_Pack(4, first, first_value, second, value);
    if (both == NULL)
        return -1;
    result = PyObject_CallMethodObjArgs(
        k->agenda, s_transfer, PyTuple_GET_ITEM(price, 0), PyTuple_GET_ITEM(price, 1), k->delivered, both, NULL);
    Py_DECREF(both);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int begin_send(Kernel *k, PyObject *actor, PyObject *box, PyObject *message, PyObject *price, int waits, int is_last)
{
    PyObject *sender = waits ? actor : Py_None, *receiver;
    int result = -1, arrived = 0;
    if (!waits && push_ready(k, actor, Py_None))
        return -1;
    receiver = PyObject_GetAttr(box, s_receiver);
    if (receiver == NULL)
        return -1;
    if (receiver == Py_None) {
        PyObject *waiting = PyObject_GetAttr(box, s_waiting), *item = PyTuple_Pack(3, sender, message, price), *done = NULL;
        if (waiting != NULL && item != NULL)
            done = PyObject_CallMethodOneArg(waiting, s_append, item);
        result = done == NULL ? -1 : 0;
        Py_XDECREF(waiting);
        Py_XDECREF(item);
        Py_XDECREF(done);
    }
    else if (!PyObject_SetAttr(box, s_receiver, Py_None)) {
        if (is_last && !PyList_GET_SIZE(k->ready))
            arrived = passes(k, price);
        if (arrived > 0)
            result = push_ready(k, receiver, message) || (waits && push_ready(k, actor, Py_None)) ? -1 : 0;
        else if (!arrived)
            result = transfer(k, price, receiver, message, sender, Py_None);
    }
    Py_DECREF(receiver);
    return result;
}

static int begin_receive(Kernel *k, PyObject *actor, PyObject *box, int is_last)
{
    PyObject *waiting = PyObject_GetAttr(box, s_waiting), *item;
    Py_ssize_t count = waiting == NULL ? -1 : PyObject_Size(waiting);
    int result = -1, arrived = 0;
    if (count == 0)
        result = PyObject_SetAttr(box, s_receiver, actor);
    else if (count > 0) {
        item = PyObject_CallMethodNoArgs(waiting, s_popleft);
        if (item != NULL && PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 3) {
            PyObject *sender = PyTuple_GET_ITEM(item, 0), *message = PyTuple_GET_ITEM(item, 1);
            PyObject *price = PyTuple_GET_ITEM(item, 2);
            if (is_last && !PyList_GET_SIZE(k->ready))
                arrived = passes(k, price);
            if (arrived > 0)
                result = (sender != Py_None && push_ready(k, sender, Py_None)) || push_ready(k, actor, message) ? -1 : 0;
            else if (!arrived)
                result = transfer(k, price, sender, Py_None, actor, message);
        }
        else if (item != NULL)
            PyErr_SetString(PyExc_TypeError, "a message has a sender, a text and a price");
        Py_XDECREF(item);
    }
    Py_XDECREF(waiting);
    return result;
}

static int begin_sleep(Kernel *k, PyObject *actor, PyObject *seconds)
{
    PyObject *result = PyObject_CallMethodObjArgs(k->agenda, s_after, seconds, k->start, actor, NULL);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

static int begin_wait(Kernel *k, PyObject *actor, PyObject *command, int is_last)
{
    PyObject *kind = PyTuple_GET_ITEM(command, 0), *subject = PyTuple_GET_ITEM(command, 1);
    PyObject *price = PyTuple_GET_ITEM(command, 3);
    if (kind == kind_of(k, SEND) || kind == kind_of(k, POST))
        return begin_send(k, actor, subject, PyTuple_GET_ITEM(command, 2), price, kind == kind_of(k, SEND), is_last);
    if (kind == kind_of(k, RECEIVE))
        return begin_receive(k, actor, subject, is_last);
    if (kind == kind_of(k, SLEEP))
        return begin_sleep(k, actor, price);
    if (kind == kind_of(k, SPAWN)) {
        if (push_ready(k, subject, Py_None))
            return -1;
    }
    else if (subject != Py_None) {
        PyObject *done = PyObject_CallNoArgs(subject);
        if (done == NULL)
            return -1;
        Py_DECREF(done);
    }
    return push_ready(k, actor, Py_None);
}

/* ---- what the agenda does */

static int deliver(Kernel *k, PyObject *both)
{
    int i;
    if (!PyTuple_Check(both) || PyTuple_GET_SIZE(both) != 4) {
        PyErr_SetString(PyExc_TypeError, "two actors and what each is told");
        return -1;
    }
    for (i = 0; i < 4; i += 2)
        if (PyTuple_GET_ITEM(both, i) != Py_None &&
            push_ready(k, PyTuple_GET_ITEM(both, i), PyTuple_GET_ITEM(both, i + 1)))
            return -1;
    return 0;
}

static int fire(Kernel *k, PyObject *entry)
{
    PyObject *callback = entry_part(entry, 2), *argument, *done;
    if (callback == NULL)
        return -1;
    argument = PyTuple_GET_ITEM(entry, 3);
    if (callback == k->start)
        return push_ready(k, argument, Py_None);
    if (callback == k->delivered)
        return deliver(k, argument);
    Py_INCREF(callback);
    Py_INCREF(argument);
    done = PyObject_CallOneArg(callback, argument);
    Py_DECREF(callback);
    Py_DECREF(argument);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int step(Kernel *k)
{
    PyObject *ended;
    Py_ssize_t i;
    int result = -1;
    ended = PyObject_CallMethodNoArgs(k->agenda, s_step);
    if (ended == NULL)
        return -1;
    if (!PyList_Check(ended)) {
        PyErr_SetString(PyExc_TypeError, "a step gives a list");
        goto end;
    }
    if (PyList_GET_SIZE(ended) == 1) {
        result = fire(k, PyList_GET_ITEM(ended, 0)) ? -1 : 1;
        goto end;
    }
    for (i = 0; i < PyList_GET_SIZE(ended); i++) {
        PyObject *entry = PyList_GET_ITEM(ended, i), *number = entry_part(entry, 1), *gone;
        int truth;
        if (number == NULL || (gone = PyObject_CallMethodOneArg(k->agenda, s_was_cancelled, number)) == NULL)
            goto end;
        truth = PyObject_IsTrue(gone); /* by one of the others */
        Py_DECREF(gone);
        if (truth < 0 || (!truth && fire(k, entry)))
            goto end;
    }
    result = i > 0;
end:
    Py_DECREF(ended);
    return result;
}

/* ---- turns */

static int note_wait(Kernel *k, PyObject *actor, PyObject *command)
{
    return PyList_Append(k->waits, actor) || PyList_Append(k->waits, command) ? -1 : 0;
}

static int begin_waits(Kernel *k)
{
    Py_ssize_t count = PyList_GET_SIZE(k->waits), i;
    for (i = 0; i < count; i += 2)
        if (begin_wait(k, PyList_GET_ITEM(k->waits, i), PyList_GET_ITEM(k->waits, i + 1), i + 2 == count))
            return -1;
    return count ? PyList_SetSlice(k->waits, 0, count, NULL) : 0;
}

static int begin_turn(Kernel *k)
{
    PyObject *fresh;
    if (++k->turns > k->most_turns) {
        double now;
        if (number_of(k->agenda, s_now, &now))
            return -1;
        if (now == k->since) {
            PyObject *date = PyFloat_FromDouble(now);
            PyErr_Format(PyExc_AssertionError, "%lld turns at %R: the world goes in circles", k->most_turns, date);
            Py_XDECREF(date);
            return -1;
        }
        k->turns = 0;
        k->since = now;
    }
    fresh = PyList_New(0);
    if (fresh == NULL)
        return -1;
    k->running = k->ready;
    k->ready = fresh;
    k->index = 0;
    return 0;
}

static PyObject *advance(Kernel *k, PyObject *reply)
{
    PyObject *actor, *value, *command;
    int ended;
    if (k->asking != NULL) {
        actor = k->asking;
        k->asking = NULL;
        value = Py_NewRef(reply);
        goto resume;
    }
    for (;;) {
        if (k->over)
            Py_RETURN_NONE;
        if (!PyList_GET_SIZE(k->ready)) {
            ended = step(k);
            if (ended < 0 || number_of(k->agenda, s_now, &k->since))
                return NULL;
            if (!ended)
                Py_RETURN_NONE;
            k->turns = 0;
            continue;
        }
        if (begin_turn(k))
            return NULL;
        while (k->index < PyList_GET_SIZE(k->running)) {
            PyObject *pair = PyList_GET_ITEM(k->running, k->index++);
            actor = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
            value = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
        resume:
            switch (PyIter_Send(actor, value, &command)) {
            case PYGEN_RETURN:
                Py_DECREF(command);
                break;
            case PYGEN_ERROR:
                Py_DECREF(value);
                Py_DECREF(actor);
                return NULL;
            default:
                if (!PyTuple_Check(command) || PyTuple_GET_SIZE(command) != 4) {
                    Py_DECREF(command);
                    Py_DECREF(value);
                    Py_DECREF(actor);
                    PyErr_SetString(PyExc_TypeError, "an actor yields what it waits for");
                    return NULL;
                }
                if (PyTuple_GET_ITEM(command, 0) == kind_of(k, EXCHANGE)) {
                    PyObject *batch = Py_NewRef(PyTuple_GET_ITEM(command, 1));
                    Py_DECREF(command);
                    Py_DECREF(value);
                    k->asking = actor;
                    return batch;
                }
                ended = PyList_GET_SIZE(k->running) == 1 ? begin_wait(k, actor, command, 1) : note_wait(k, actor, command);
                Py_DECREF(command);
                if (ended) {
                    Py_DECREF(value);
                    Py_DECREF(actor);
                    return NULL;
                }
            }
            Py_DECREF(value);
            Py_DECREF(actor);
        }
        Py_CLEAR(k->running);
        if (PyList_GET_SIZE(k->waits) && begin_waits(k))
            return NULL;
    }
}

static PyObject *start(Kernel *k, PyObject *actor)
{
    if (push_ready(k, actor, Py_None))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *delivered(Kernel *k, PyObject *both)
{
    if (deliver(k, both))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *stop(Kernel *k, PyObject *unused)
{
    (void)unused;
    k->over = 1;
    Py_RETURN_NONE;
}

static int traverse(Kernel *k, visitproc visit, void *arg)
{
    Py_VISIT(k->agenda);
    Py_VISIT(k->kinds);
    Py_VISIT(k->ready);
    Py_VISIT(k->start);
    Py_VISIT(k->delivered);
    Py_VISIT(k->running);
    Py_VISIT(k->waits);
    Py_VISIT(k->asking);
    return 0;
}

static int clear(Kernel *k)
{
    Py_CLEAR(k->agenda);
    Py_CLEAR(k->kinds);
    Py_CLEAR(k->ready);
    Py_CLEAR(k->start);
    Py_CLEAR(k->delivered);
    Py_CLEAR(k->running);
    Py_CLEAR(k->waits);
    Py_CLEAR(k->asking);
    return 0;
}

static void dealloc(Kernel *k)
{
    PyObject_GC_UnTrack(k);
    clear(k);
    Py_TYPE(k)->tp_free((PyObject *)k);
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *agenda, *kinds;
    long long most;
    Kernel *k;
    (void)names;
    if (!PyArg_ParseTuple(args, "OO!L", &agenda, &PyTuple_Type, &kinds, &most))
        return NULL;
    if (PyTuple_GET_SIZE(kinds) != KINDS) {
        PyErr_Format(PyExc_ValueError, "%d kinds of waits", KINDS);
        return NULL;
    }
    k = (Kernel *)type->tp_alloc(type, 0);
    if (k == NULL)
        return NULL;
    k->agenda = Py_NewRef(agenda);
    k->kinds = Py_NewRef(kinds);
    k->most_turns = most;
    k->ready = PyList_New(0);
    k->waits = PyList_New(0);
    k->start = PyObject_GetAttrString((PyObject *)k, "start");
    k->delivered = PyObject_GetAttrString((PyObject *)k, "delivered");
    if (k->ready == NULL || k->waits == NULL || k->start == NULL || k->delivered == NULL ||
        number_of(agenda, s_now, &k->since)) {
        Py_DECREF(k);
        return NULL;
    }
    return (PyObject *)k;
}

static PyMethodDef methods[] = {
    {"start", (PyCFunction)start, METH_O, "Makes an actor ready."},
    {"delivered", (PyCFunction)delivered, METH_O, "Resumes the one that came first, then the other."},
    {"stop", (PyCFunction)stop, METH_NOARGS, "Ends advance() before the next turn."},
    {"advance", (PyCFunction)advance, METH_O, "Runs to the next batch."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pilothouse.worlds.simulated.message_server._rounds.Kernel",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = make,
    .tp_dealloc = (destructor)dealloc,
    .tp_traverse = (traverseproc)traverse,
    .tp_clear = (inquiry)clear,
    .tp_methods = methods,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_rounds", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__rounds(void)
{
    static const struct { PyObject **name; const char *text; } names[] = {
        {&s_now, "now"}, {&s_receiver, "receiver"}, {&s_waiting, "waiting"}, {&s_append, "append"},
        {&s_popleft, "popleft"}, {&s_after, "after"}, {&s_transfer, "transfer"}, {&s_passes, "passes"},
        {&s_step, "step"}, {&s_was_cancelled, "was_cancelled"},
    };
    PyObject *result;
    size_t i;
    for (i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL)
            return NULL;
    if (PyType_Ready(&kernel_type))
        return NULL;
    result = PyModule_Create(&module);
    if (result != NULL && PyModule_AddObjectRef(result, "Kernel", (PyObject *)&kernel_type)) {
        Py_DECREF(result);
        return NULL;
    }
    return result;
}
