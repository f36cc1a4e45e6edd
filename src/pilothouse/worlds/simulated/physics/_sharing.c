/* The rounds of the fair bottleneck in C: the twin of solve_rounds in sharing.py, which is its oracle.
 *
 * solve_rounds(private, bounds, capacities, members, pipes, precision) -> list of rates
 *   private:    list of (capacity, amount) of a constraint that each flow has for itself
 *   bounds:     list of the highest rate of each flow
 *   capacities: list of the capacity of each common constraint
 *   members:    for each common constraint a list of (flow, sum, largest, count)
 *   pipes:      list of whether each common constraint is a pipe
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define MOST_ROUNDS 1000 /* As in sharing.py. */

typedef struct {
    Py_ssize_t flow;
    double sum, largest;
    long count;
} Use;

typedef struct {
    Py_ssize_t flows, constraints, uses;
    double *left, *amount, *bound, *rate, *growth;   /* of flows */
    double *remaining, *share;                       /* of constraints */
    Py_ssize_t *first;                               /* of constraints, one more at the end */
    Use *use;                                        /* by constraint */
    Py_ssize_t *of_first, *of_constraint, *fill;     /* by flow */
    double *of_largest;
    char *active, *in_play, *pipe;
} Problem;

static void free_problem(Problem *p)
{
    PyMem_Free(p->left);
    PyMem_Free(p->remaining);
    PyMem_Free(p->first);
    PyMem_Free(p->use);
    PyMem_Free(p->of_first);
    PyMem_Free(p->of_largest);
    PyMem_Free(p->active);
}

static void solve(Problem *p, double precision)
{
    Py_ssize_t f, c, k, running = p->flows;
    int rounds = 0;
    memset(p->active, 1, (size_t)p->flows);
    memset(p->in_play, 1, (size_t)p->constraints);
    while (running > 0 && rounds++ < MOST_ROUNDS) {
        for (c = 0; c < p->constraints; c++) {
            long users = 0;
            if (!p->in_play[c])
                continue;
            for (k = p->first[c]; k < p->first[c + 1]; k++)
                if (p->active[p->use[k].flow])
                    users += p->use[k].count;
            if (users) {
                p->share[c] = p->remaining[c] / (p->pipe[c] ? 1.0 : (double)users);
            } else {
                p->share[c] = 0.0;
                p->in_play[c] = 0;
            }
        }
        for (f = 0; f < p->flows; f++) {
            double step;
            if (!p->active[f])
                continue;
            step = p->left[f] / p->amount[f];
            for (k = p->of_first[f]; k < p->of_first[f + 1]; k++) {
                double one = p->share[p->of_constraint[k]] / p->of_largest[k];
                if (one < step)
                    step = one;
            }
            if (p->bound[f] - p->rate[f] < step)
                step = p->bound[f] - p->rate[f];
            p->growth[f] = step;
            p->rate[f] += step;
            if (p->rate[f] == p->bound[f])
                p->active[f] = 0;
            p->left[f] -= p->amount[f] * step;
            if (p->left[f] < precision) {
                p->left[f] = 0.0;
                p->active[f] = 0;
            }
        }
        for (c = 0; c < p->constraints; c++) {
            double rest;
            if (!p->in_play[c])
                continue;
            rest = p->remaining[c];
            /* Also for flows that are no longer active, with their last growth: see sharing.py. */
            if (p->pipe[c]) {
                double least = p->share[c];
                for (k = p->first[c]; k < p->first[c + 1]; k++)
                    if (p->use[k].sum * p->growth[p->use[k].flow] < least)
                        least = p->use[k].sum * p->growth[p->use[k].flow];
                rest -= least;
                if (rest < precision)
                    rest = 0.0;
            } else {
                for (k = p->first[c]; k < p->first[c + 1]; k++) {
                    rest -= p->use[k].sum * p->growth[p->use[k].flow];
                    if (rest < precision)
                        rest = 0.0;
                }
            }
            p->remaining[c] = rest;
            if (rest <= 0.0) {
                p->in_play[c] = 0;
                for (k = p->first[c]; k < p->first[c + 1]; k++)
                    p->active[p->use[k].flow] = 0;
            }
        }
        running = 0;
        for (f = 0; f < p->flows; f++)
            running += p->active[f];
    }
}

static int fill(Problem *p, PyObject *private, PyObject *bounds, PyObject *capacities, PyObject *members, PyObject *pipes)
{
    Py_ssize_t f, c, k, n = 0;
    p->flows = PyList_GET_SIZE(private);
    p->constraints = PyList_GET_SIZE(capacities);
    if (PyList_GET_SIZE(bounds) != p->flows || PyList_GET_SIZE(members) != p->constraints ||
        PyList_GET_SIZE(pipes) != p->constraints) {
        PyErr_SetString(PyExc_ValueError, "lists of different lengths");
        return -1;
    }
    for (c = 0; c < p->constraints; c++) {
        PyObject *list = PyList_GET_ITEM(members, c);
        if (!PyList_Check(list)) {
            PyErr_SetString(PyExc_TypeError, "members must be lists");
            return -1;
        }
        n += PyList_GET_SIZE(list);
    }
    p->uses = n;
    p->left = PyMem_Calloc((size_t)(5 * p->flows + 1), sizeof(double));
    p->remaining = PyMem_Calloc((size_t)(2 * p->constraints + 1), sizeof(double));
    p->first = PyMem_Calloc((size_t)(p->constraints + 1), sizeof(Py_ssize_t));
    p->use = PyMem_Calloc((size_t)(n + 1), sizeof(Use));
    p->of_first = PyMem_Calloc((size_t)(2 * p->flows + n + 2), sizeof(Py_ssize_t));
    p->of_largest = PyMem_Calloc((size_t)(n + 1), sizeof(double));
    p->active = PyMem_Calloc((size_t)(p->flows + 2 * p->constraints + 1), 1);
    if (!p->left || !p->remaining || !p->first || !p->use || !p->of_first || !p->of_largest || !p->active) {
        PyErr_NoMemory();
        return -1;
    }
    p->amount = p->left + p->flows;
    p->bound = p->amount + p->flows;
    p->rate = p->bound + p->flows;
    p->growth = p->rate + p->flows;
    p->share = p->remaining + p->constraints;
    p->fill = p->of_first + p->flows + 1;
    p->of_constraint = p->fill + p->flows;
    p->in_play = p->active + p->flows;
    p->pipe = p->in_play + p->constraints;
    for (f = 0; f < p->flows; f++) {
        PyObject *pair = PyList_GET_ITEM(private, f);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "private must hold pairs");
            return -1;
        }
        p->left[f] = PyFloat_AsDouble(PyTuple_GET_ITEM(pair, 0));
        p->amount[f] = PyFloat_AsDouble(PyTuple_GET_ITEM(pair, 1));
        p->bound[f] = PyFloat_AsDouble(PyList_GET_ITEM(bounds, f));
    }
    for (c = 0, k = 0; c < p->constraints; c++) {
        PyObject *list = PyList_GET_ITEM(members, c);
        Py_ssize_t i, size = PyList_GET_SIZE(list);
        p->remaining[c] = PyFloat_AsDouble(PyList_GET_ITEM(capacities, c));
        p->pipe[c] = PyList_GET_ITEM(pipes, c) == Py_True;
        p->first[c] = k;
        for (i = 0; i < size; i++, k++) {
            PyObject *item = PyList_GET_ITEM(list, i);
            Use *use = &p->use[k];
            if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 4) {
                PyErr_SetString(PyExc_TypeError, "a member is (flow, sum, largest, count)");
                return -1;
            }
            use->flow = PyLong_AsSsize_t(PyTuple_GET_ITEM(item, 0));
            use->sum = PyFloat_AsDouble(PyTuple_GET_ITEM(item, 1));
            use->largest = PyFloat_AsDouble(PyTuple_GET_ITEM(item, 2));
            use->count = PyLong_AsLong(PyTuple_GET_ITEM(item, 3));
            if (use->flow < 0 || use->flow >= p->flows) {
                if (!PyErr_Occurred())
                    PyErr_SetString(PyExc_IndexError, "a member's flow does not exist");
                return -1;
            }
            p->of_first[use->flow + 1]++;
        }
    }
    p->first[p->constraints] = k;
    if (PyErr_Occurred())
        return -1;
    for (f = 0; f < p->flows; f++) {
        p->of_first[f + 1] += p->of_first[f];
        p->fill[f] = p->of_first[f];
    }
    for (c = 0; c < p->constraints; c++)
        for (k = p->first[c]; k < p->first[c + 1]; k++) {
            Py_ssize_t place = p->fill[p->use[k].flow]++;
            p->of_constraint[place] = c;
            p->of_largest[place] = p->use[k].largest;
        }
    return 0;
}

static PyObject *solve_rounds(PyObject *self, PyObject *args)
{
    PyObject *private, *bounds, *capacities, *members, *pipes, *rates = NULL;
    double precision;
    Problem p;
    (void)self;
    memset(&p, 0, sizeof p);
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!d", &PyList_Type, &private, &PyList_Type, &bounds, &PyList_Type, &capacities,
                          &PyList_Type, &members, &PyList_Type, &pipes, &precision))
        return NULL;
    if (fill(&p, private, bounds, capacities, members, pipes) == 0) {
        Py_ssize_t f;
        solve(&p, precision);
        rates = PyList_New(p.flows);
        for (f = 0; rates && f < p.flows; f++) {
            PyObject *rate = PyFloat_FromDouble(p.rate[f]);
            if (!rate) {
                Py_CLEAR(rates);
                break;
            }
            PyList_SET_ITEM(rates, f, rate);
        }
    }
    free_problem(&p);
    return rates;
}

static PyMethodDef methods[] = {
    {"solve_rounds", solve_rounds, METH_VARARGS, "The rates of flows that share constraints."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_sharing", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sharing(void)
{
    return PyModule_Create(&module);
}
