/* Starting tasks one after another and waiting for each, in one call: what cylinder.py does step by step where this is not
   built. Most of what a tiny task costs in Python is memory that the task before has driven out of the caches.

   run(launches, env, fds, polled, log, pending, wait_s, cut_at, last, return_at) -> (ended, begun, written, pending)

   launches   list of (task id, attempt, argv, variables of its own)
   polled     the descriptors of the link to the engine and of the ends of stdout and stderr to read from
   log        the cylinder's log (spool.py); `pending` comes first in the next write to it. A task is begun when the log says
              so, and the log has its end before the next begins, or at the latest with the bytes returned as `pending`.
   wait_s     how long to wait for a task before the caller looks at it; `cut_at` is a date of that kind, for all but the task
              with the id `last`, which no other waits behind
   return_at  when no other task is to be begun (monotonic clock, as cut_at)

   `ended` holds the results (MessagePack, messages.Result) of tasks that ended with code 0, wrote nothing and left nothing
   behind. The first task that did not is `begun`: (pid, status, ready, survivors, cpu_s, memory_kb, started_at, started).
   Its status is -1 if something else came before its end: wait_s or cut_at was over, a message on the link, or output to be
   drained. The caller then deals with that and goes on by itself. After the end, `ready` says whether there is output, and
   `survivors` whether the task's process group lives on. The pid is -errno if the program could not be started.
   `begun` is None if all has ended, it is late, or the log cannot be written to (the rest is in `pending`). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#define MOST_POLL_MS 3600000

/* ---- records of the log, as spool.py writes them */

#define BEGIN_BYTES 13
#define RESULT_BYTES 78
#define END_BYTES (5 + RESULT_BYTES)

struct started_task {
    int64_t id, attempt;
    pid_t pid;
    int status, ready, survivors;
    double started_at, started, cpu_s;
    int64_t memory_kb;
};

static unsigned char *put_little(unsigned char *at, uint64_t value, int size)
{
    for (; size > 0; size--, value >>= 8)
        *at++ = (unsigned char)value;
    return at;
}

static unsigned char *put_big(unsigned char *at, uint64_t value, int size)
{
    while (size > 0)
        *at++ = (unsigned char)(value >> 8 * --size);
    return at;
}

/* A number of MessagePack: a mark, and its bytes. */
static unsigned char *put_int(unsigned char *at, int64_t value)
{
    *at++ = 0xd3;
    return put_big(at, (uint64_t)value, 8);
}

static unsigned char *put_float(unsigned char *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *at++ = 0xcb;
    return put_big(at, bits, 8);
}

static unsigned char *put_bytes(unsigned char *at, const char *bytes, size_t size)
{
    memcpy(at, bytes, size);
    return at + size;
}

static void put_begin(unsigned char *at, int64_t task)
{
    *at++ = 'B';
    put_little(put_little(at, BEGIN_BYTES, 4), (uint64_t)task, 8);
}

/* The 16 fields of messages.Result, in their order. */
static void put_end(unsigned char *at, const struct started_task *task, double ended)
{
    *at++ = 'E';
    at = put_little(at, END_BYTES, 4);
    at = put_bytes(at, "\xdc\0\x10", 3);
    at = put_int(at, task->id);
    at = put_int(at, task->attempt);
    *at++ = 0;
    at = put_int(at, task->pid);
    at = put_float(at, task->started_at);
    at = put_float(at, task->started_at + (ended - task->started));
    at = put_bytes(at, "\0\xc4\0" /* stdout */ "\0\xc4\0" /* stderr */ "\xa0" /* reason */, 7);
    at = put_float(at, task->cpu_s);
    at = put_int(at, task->memory_kb);
    put_bytes(at, "\xc4\0" /* last line */ "\0" /* place of its output */ "\0" /* left out */, 4);
}

/* ---- starting a task */

/* Strings before it and those of a list, with NULL at the end. */
static char **to_vector(char **before, Py_ssize_t count, PyObject *list)
{
    Py_ssize_t i;
    char **vector;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "a list of bytes is needed");
        return NULL;
    }
    vector = PyMem_Malloc((size_t)(count + PyList_GET_SIZE(list) + 1) * sizeof(char *));
    if (vector == NULL)
        return (char **)PyErr_NoMemory();
    if (count)
        memcpy(vector, before, (size_t)count * sizeof(char *));
    for (i = 0; i < PyList_GET_SIZE(list); i++) {
        /* Raises ValueError for a NUL: what is behind it would be lost. */
        if (PyBytes_AsStringAndSize(PyList_GET_ITEM(list, i), &vector[count++], NULL) < 0) {
            PyMem_Free(vector);
            return NULL;
        }
    }
    vector[count] = NULL;
    return vector;
}

/* Between vfork and exec: only system calls, no memory of the parent is changed but `*problem`. */
static void become(char **argv, char **env, const int *fds, const sigset_t *mask, pid_t parent, volatile int *problem)
{
    int target;
    setsid();
    /* It ends with its cylinder, however that ends. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(255);
    for (target = 0; target < 3; target++)
        if (dup2(fds[target], target) < 0)
            goto failed;
    /* Python ignores these two; a task must find them as a shell would leave them. */
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execve(argv[0], argv, env);
failed:
    *problem = errno;
    _exit(255);
}

static double clock_s(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int milliseconds(double until)
{
    double left;
    if (isinf(until))
        return -1;
    left = (until - clock_s(CLOCK_MONOTONIC)) * 1000;
    return left < 0 ? 0 : left > MOST_POLL_MS ? MOST_POLL_MS : (int)left + 1;
}

static void wait_for(struct started_task *task, const int *descriptors, double until)
{
    struct pollfd polled[4];
    struct rusage used;
    int got, i, pidfd = (int)syscall(SYS_pidfd_open, task->pid, 0);
    if (pidfd < 0)
        return;
    /* Linux looks at them in this order: when it sees that the task has ended, it sees all that the task wrote. */
    for (i = 0; i < 4; i++) {
        polled[i].fd = i ? descriptors[i - 1] : pidfd;
        polled[i].events = POLLIN;
    }
    got = poll(polled, 4, milliseconds(until));
    close(pidfd);
    if (got <= 0)
        return;
    task->ready = polled[2].revents || polled[3].revents;
    if (!polled[0].revents)
        return;
    wait4(task->pid, &task->status, 0, &used);
    task->cpu_s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                  (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    task->memory_kb = used.ru_maxrss;
    if (kill(-task->pid, 0) < 0 && errno == ESRCH)
        return;
    /* Orphans of the task are ours: those that have ended must not count as alive. */
    while (waitpid(-task->pid, NULL, WNOHANG) > 0)
        ;
    task->survivors = kill(-task->pid, 0) == 0 || errno == EPERM;
}

static void start(struct started_task *task, char **argv, char **env, const int *fds)
{
    volatile int problem = 0;
    pid_t parent = getpid();
    sigset_t all, mask;
    task->status = -1;
    task->ready = task->survivors = 0;
    task->cpu_s = 0;
    task->memory_kb = 0;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask);
    task->pid = vfork();
    if (task->pid == 0)
        become(argv, env, fds, &mask, parent, &problem);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (task->pid < 0)
        problem = errno;
    else if (problem)
        waitpid(task->pid, NULL, 0);
    if (problem)
        task->pid = -problem;
}

/* ---- the loop */

/* The vectors of a launch; false, with an exception, if it is none or has a NUL in it. */
static int unpack(PyObject *launch, char **common, Py_ssize_t size, struct started_task *task, char ***argv, char ***env)
{
    PyObject *argv_list, *own_list;
    long long id, attempt;
    if (!PyArg_ParseTuple(launch, "LLOO", &id, &attempt, &argv_list, &own_list))
        return 0;
    task->id = id;
    task->attempt = attempt;
    *argv = to_vector(NULL, 0, argv_list);
    if (*argv == NULL)
        return 0;
    *env = to_vector(common, size, own_list);
    if (*env == NULL)
        PyMem_Free(*argv);
    return *env != NULL;
}

/* What a write of two parts has left over. */
static PyObject *rest_of(const struct iovec *parts, ssize_t written)
{
    size_t done = written > 0 ? (size_t)written : 0, size = parts[0].iov_len + parts[1].iov_len - done;
    PyObject *rest = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    char *at;
    int i;
    if (rest == NULL)
        return NULL;
    at = PyBytes_AS_STRING(rest);
    for (i = 0; i < 2; i++) {
        size_t skipped = done < parts[i].iov_len ? done : parts[i].iov_len;
        memcpy(at, (const char *)parts[i].iov_base + skipped, parts[i].iov_len - skipped);
        at += parts[i].iov_len - skipped;
        done -= skipped;
    }
    return rest;
}

static PyObject *run(PyObject *self, PyObject *args)
{
    PyObject *launches, *env_list, *ended;
    Py_ssize_t pending_size, most, count = 0, total = 0;
    int fds[3], polled[3], log, begun = 0;
    double wait_s, cut_at, return_at, until;
    long long last;
    const char *pending;
    char **argv, **env, **common;
    ssize_t written = 0;
    struct started_task task;
    unsigned char begin[BEGIN_BYTES], end[END_BYTES], *results;
    struct iovec parts[2];

    if (!PyArg_ParseTuple(args, "O!O(iii)(iii)iy#ddLd", &PyList_Type, &launches, &env_list, &fds[0], &fds[1], &fds[2],
                          &polled[0], &polled[1], &polled[2], &log, &pending, &pending_size, &wait_s, &cut_at, &last,
                          &return_at))
        return NULL;
    most = PyList_GET_SIZE(launches);
    /* What a task has done must not get lost for want of memory: there is room for all results before the first begins. */
    ended = PyBytes_FromStringAndSize(NULL, 5 + most * RESULT_BYTES);
    common = ended == NULL ? NULL : to_vector(NULL, 0, env_list);
    if (common == NULL) {
        Py_XDECREF(ended);
        return NULL;
    }
    results = (unsigned char *)PyBytes_AS_STRING(ended) + 5;
    parts[0].iov_base = (void *)pending;
    parts[0].iov_len = (size_t)pending_size;
    parts[1].iov_base = begin;
    parts[1].iov_len = 0;
    while (count < most && !begun) {
        task.started = clock_s(CLOCK_MONOTONIC);
        task.started_at = clock_s(CLOCK_REALTIME);
        if (count && task.started >= return_at)
            break;
        if (!unpack(PyList_GET_ITEM(launches, count), common, PyList_GET_SIZE(env_list), &task, &argv, &env)) {
            if (count) {
                PyErr_Clear(); /* it is the first of the next call */
                break;
            }
            PyMem_Free(common);
            Py_DECREF(ended);
            return NULL;
        }
        Py_BEGIN_ALLOW_THREADS
        put_begin(begin, task.id);
        parts[1].iov_len = BEGIN_BYTES;
        written = writev(log, parts, 2);
        begun = written == (ssize_t)(parts[0].iov_len + parts[1].iov_len);
        if (begun) {
            start(&task, argv, env, fds);
            until = task.started + wait_s;
            if (task.pid > 0)
                wait_for(&task, polled, task.id != last && cut_at < until ? cut_at : until);
        }
        Py_END_ALLOW_THREADS
        PyMem_Free(argv);
        PyMem_Free(env);
        if (written > 0)
            total += written;
        if (!begun)
            break; /* a full disk */
        parts[0].iov_len = parts[1].iov_len = written = 0;
        if (task.pid > 0 && !task.status && !task.ready && !task.survivors) {
            begun = 0;
            put_end(end, &task, clock_s(CLOCK_MONOTONIC));
            memcpy(results + count++ * RESULT_BYTES, end + END_BYTES - RESULT_BYTES, RESULT_BYTES);
            parts[0].iov_base = end;
            parts[0].iov_len = END_BYTES;
        }
    }
    PyMem_Free(common);
    /* A list of MessagePack. */
    results[-5] = 0xdd;
    put_big(results - 4, (uint64_t)count, 4);
    if (_PyBytes_Resize(&ended, 5 + count * RESULT_BYTES) < 0)
        return NULL;
    if (!begun)
        return Py_BuildValue("NOnN", ended, Py_None, total, rest_of(parts, written));
    return Py_BuildValue("N(iiiidLdd)nN", ended, (int)task.pid, task.status, task.ready, task.survivors, task.cpu_s,
                         (long long)task.memory_kb, task.started_at, task.started, total, rest_of(parts, written));
}

static PyMethodDef methods[] = {
    {"run", run, METH_VARARGS, "Start programs one after another and wait for each, until something else is to be done."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_spawn", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__spawn(void)
{
    return PyModule_Create(&module);
}
