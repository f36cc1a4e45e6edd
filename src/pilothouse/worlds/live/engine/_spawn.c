/* Starting one task and waiting for it, in one call: what cylinder.py does step by step where this is not built.

   run(argv, env, stdin, out, err, link, out_read, err_read, timeout_ms) -> (pid, status, ready, survivors)

   status is -1 if something else came first: the deadline, a message on `link`, or output to be drained (bits 1, 2, 4 of
   `ready`). The caller then deals with that and goes on by itself. After the end, `ready` tells which streams hold bytes,
   and `survivors` whether anybody is left in the task's process group. An exec that fails ends the child with code 255
   after its errno was written to a pipe; run() then returns (-errno, 0, 0, 0). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static char **to_vector(PyObject *list)
{
    Py_ssize_t count, i;
    char **vector;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "a list of bytes is needed");
        return NULL;
    }
    count = PyList_GET_SIZE(list);
    vector = PyMem_Malloc((size_t)(count + 1) * sizeof(char *));
    if (vector == NULL)
        return (char **)PyErr_NoMemory();
    for (i = 0; i < count; i++) {
        /* Raises ValueError for a NUL: what is behind it would be lost. */
        if (PyBytes_AsStringAndSize(PyList_GET_ITEM(list, i), &vector[i], NULL) < 0) {
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

static PyObject *run(PyObject *self, PyObject *args)
{
    PyObject *argv_list, *env_list;
    int fds[3], link, out_read, err_read, timeout_ms, pidfd, status = -1, ready = 0, survivors = 0, got;
    volatile int problem = 0;
    char **argv, **env;
    pid_t pid, parent = getpid();
    sigset_t all, mask;
    struct pollfd polled[4];
    struct rusage used = {0};

    if (!PyArg_ParseTuple(args, "OOiiiiiii", &argv_list, &env_list, &fds[0], &fds[1], &fds[2], &link, &out_read,
                          &err_read, &timeout_ms))
        return NULL;
    argv = to_vector(argv_list);
    if (argv == NULL)
        return NULL;
    env = to_vector(env_list);
    if (env == NULL) {
        PyMem_Free(argv);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask);
    pid = vfork();
    if (pid == 0)
        become(argv, env, fds, &mask, parent, &problem);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (pid < 0)
        problem = errno;
    else if (problem)
        waitpid(pid, &status, 0);
    else {
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (pidfd >= 0) {
            polled[0].fd = pidfd;
            polled[1].fd = link;
            polled[2].fd = out_read;
            polled[3].fd = err_read;
            polled[0].events = polled[1].events = polled[2].events = polled[3].events = POLLIN;
            got = poll(polled, 4, timeout_ms);
            close(pidfd);
            if (got > 0 && polled[0].revents) {
                wait4(pid, &status, 0, &used);
                /* What was written between the poll and the end is there by now. */
                poll(polled + 1, 3, 0);
                /* Orphans of the task are ours: those that have ended must not count as alive. */
                while (waitpid(-pid, NULL, WNOHANG) > 0)
                    ;
                survivors = kill(-pid, 0) == 0 || errno == EPERM;
            }
            if (got > 0)
                ready = (polled[1].revents != 0) | (polled[2].revents != 0) << 1 | (polled[3].revents != 0) << 2;
        }
    }
    Py_END_ALLOW_THREADS
    PyMem_Free(argv);
    PyMem_Free(env);
    if (problem)
        return Py_BuildValue("iiiidl", -problem, 0, 0, 0, 0.0, 0L);
    return Py_BuildValue("iiiidl", (int)pid, status, ready, survivors,
                         used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6,
                         used.ru_maxrss);
}

static PyMethodDef methods[] = {
    {"run", run, METH_VARARGS, "Start one program and wait for it, or for something else to happen."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_spawn", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__spawn(void)
{
    return PyModule_Create(&module);
}
