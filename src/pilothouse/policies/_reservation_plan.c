/* The reservation plan in C: the twin of PlainReservationPlan in reservation_plan.py, which is its oracle and documents it.
 *
 * Free units over time are steps: free[i] from dates[i] to dates[i+1]; the last one lasts for ever. Four things make a long
 * queue cheap, and change no reservation:
 *
 * - Requests for the same units and duration are a class. While a plan is made, steps only lose units, so the next search of
 *   a class goes on where its last one ended.
 * - Neighbours of one class in the queue are placed together, as many as fit at one date.
 * - A plan is made only as far as it decides which jobs start now. A job that could start now, as far as is known, is a
 *   candidate. Of the jobs before it, those that cannot start before its end are passed over. So a job may be placed while
 *   others before it are not: none of these starts before its end, so that neither is in the way of the other.
 * - A job that ends when it was expected to changes nothing: made again, each reservation would be the same. What was free
 *   for too short a time from an earlier date on is so from now on as well.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#pragma GCC optimize("O3")

typedef struct {
    int units;
    double duration;
    double from;            /* where the next search begins, in the plan number `searched`: at a step from `at` on */
    Py_ssize_t at;
    unsigned int searched;
    unsigned int blocked;   /* in this pass it cannot start any more */
} Class;

typedef struct {
    double start;
    unsigned int kind;      /* index of the class */
    unsigned int placed;    /* in the plan of this number it has its start */
    PyObject *job;
} Entry;

typedef struct {
    double date;
    int units;
} End;

typedef struct {
    PyObject_HEAD
    PyObject *held;         /* job id -> (date, units) */
    PyObject *kinds;        /* (units, duration) -> index of the class */
    double *dates;
    int *free;
    Py_ssize_t count, room;
    Entry *entries;
    Py_ssize_t queued, entries_room;
    Py_ssize_t known;       /* all jobs before are placed */
    Py_ssize_t fresh;       /* the jobs from here on have come since the last pass */
    Class *classes;
    Py_ssize_t class_count, classes_room;
    End *ends;
    Py_ssize_t end_count, ends_room;
    unsigned int number;    /* of the plan */
    unsigned int pass;
    double soonest;         /* no placed job starts before */
    double safe_until;      /* no other job starts before */
    char stale;
    double released_at;     /* when the last job ended */
    long long on_time;      /* so many ends in a row were expected */
    char late;              /* a job was due before it could start: units are not used as planned */
} Plan;

#define MOST_UNUSED 1024
/* A plan that was made in part is completed after so many expected ends in a row: that costs as much as several in part. */
#define STREAK 8

static PyObject *text_id;

static int wrong(const char *usage)
{
    PyErr_SetString(PyExc_TypeError, usage);
    return -1;
}

/* Makes room for one more item. */
static int grow(void **items, Py_ssize_t *room, Py_ssize_t count, size_t size)
{
    void *larger;
    Py_ssize_t wanted = *room ? 2 * *room : 64;
    if (count < *room)
        return 0;
    if ((larger = PyMem_Realloc(*items, (size_t)wanted * size)) == NULL)
        return PyErr_NoMemory(), -1;
    *items = larger;
    *room = wanted;
    return 0;
}

/* ---- free units over time */

/* The first step that does not begin before the date. Halves the range without a branch: the way cannot be guessed. */
static Py_ssize_t step_from(const Plan *self, double date)
{
    const double *dates = self->dates;
    Py_ssize_t rest = self->count;
    while (rest > 1) {
        Py_ssize_t half = rest / 2;
        dates += dates[half - 1] < date ? half : 0;
        rest -= half;
    }
    return dates - self->dates + (*dates < date);
}

/* The first step that begins after the date. Of these there are few before it. */
static Py_ssize_t step_after(const Plan *self, double date)
{
    Py_ssize_t index = 0;
    while (index < self->count && self->dates[index] <= date)
        index++;
    return index;
}

static int grow_steps(Plan *self)
{
    Py_ssize_t room = self->room;
    if (grow((void **)&self->dates, &room, self->count, sizeof *self->dates))
        return -1;
    return grow((void **)&self->free, &self->room, self->count, sizeof *self->free);
}

/* Takes units from step `first` to the date `end`, before which `last` is the first step that does not begin. */
static int take(Plan *self, Py_ssize_t first, Py_ssize_t last, double end, int units)
{
    int *free;
    if (last <= first)
        return 0;
    if (end < Py_HUGE_VAL && (last == self->count || self->dates[last] != end)) {
        size_t rest = (size_t)(self->count - last);
        if (grow_steps(self))
            return -1;
        memmove(self->dates + last + 1, self->dates + last, rest * sizeof *self->dates);
        memmove(self->free + last + 1, self->free + last, rest * sizeof *self->free);
        self->dates[last] = end;
        self->free[last] = self->free[last - 1];
        self->count++;
    }
    for (free = self->free; first < last; first++)
        free[first] -= units;
    return 0;
}

/* Sixteen steps at a time, four in a register. */
#define BLOCK 16
typedef int Lanes __attribute__((vector_size(16), aligned(4), may_alias));
#define LANES(free, index, k) (*(const Lanes *)((free) + (index) + 4 * (k)))

/* The first step from `index` on, and before `last`, that has fewer units; `last` if there is none. */
static Py_ssize_t first_below(const int *free, Py_ssize_t index, Py_ssize_t last, int units)
{
    for (; index + BLOCK <= last; index += BLOCK) {
        Lanes fewer = (LANES(free, index, 0) - units) | (LANES(free, index, 1) - units) | (LANES(free, index, 2) - units)
            | (LANES(free, index, 3) - units);
        if ((fewer[0] | fewer[1] | fewer[2] | fewer[3]) < 0)    /* one of them is */
            break;
    }
    while (index < last && free[index] >= units)
        index++;
    return index;
}

/* The first step from `index` on, and before `last`, that has as many units; `last` if there is none. */
static Py_ssize_t first_with(const int *free, Py_ssize_t index, Py_ssize_t last, int units)
{
    for (; index + BLOCK <= last; index += BLOCK) {
        Lanes fewer = (LANES(free, index, 0) - units) & (LANES(free, index, 1) - units) & (LANES(free, index, 2) - units)
            & (LANES(free, index, 3) - units);
        if ((fewer[0] & fewer[1] & fewer[2] & fewer[3]) >= 0)   /* not all of them are */
            break;
    }
    while (index < last && free[index] < units)
        index++;
    return index;
}

/* The first step that does not begin before the duration is over, if the units are free that long from a step that has them;
 * else the first step that lacks some, negated. */
static Py_ssize_t lasts(const Plan *self, Py_ssize_t index, int units, double duration)
{
    double end = self->dates[index] + duration;
    Py_ssize_t near = index + BLOCK < self->count ? index + BLOCK : self->count, last, blocked;
    /* Most gaps that are too short end soon. */
    blocked = first_below(self->free, index + 1, near, units);
    if (blocked < near && self->dates[blocked] < end)
        return -blocked;
    last = step_from(self, end);
    if (last <= near)
        return last;
    blocked = first_below(self->free, near, last, units);
    return blocked == last ? last : -blocked;
}

/* The first step of those before `limit` from which a job of the class can run; `last` as in `take`. If there is none, a later
 * one, before which it cannot start. The next search begins there. */
static Py_ssize_t earliest(const Plan *self, Class *kind, Py_ssize_t limit, Py_ssize_t *last)
{
    Py_ssize_t index = kind->at;
    if (kind->searched != self->number) {
        kind->searched = self->number;
        kind->from = -Py_HUGE_VAL;
        index = 0;
    }
    /* Steps have been put before it since. */
    while (index < self->count && self->dates[index] < kind->from)
        index++;
    while (index < limit && (index = first_with(self->free, index, limit, kind->units)) < limit) {
        *last = lasts(self, index, kind->units, kind->duration);
        if (*last >= 0)
            break;
        index = 1 - *last;
    }
    kind->at = index;
    kind->from = index < self->count ? self->dates[index] : Py_HUGE_VAL;
    return index;
}

/* How many jobs of these units could run beside each other in these steps. */
static Py_ssize_t room_in(const Plan *self, Py_ssize_t index, Py_ssize_t last, int units, Py_ssize_t most)
{
    const int *free = self->free;
    int least = free[index];
    if (units <= 0 || most == 1)
        return most;
    for (; index < last; index++)
        least = free[index] < least ? free[index] : least;
    return least / units < most ? least / units : most;
}

static void forget_before(Plan *self, double now)
{
    Py_ssize_t index = step_from(self, now);
    if (index == self->count || self->dates[index] != now)
        index--;
    if (index > 0) {
        Py_ssize_t kind;
        for (kind = 0; kind < self->class_count; kind++)
            self->classes[kind].at = 0;
        self->count -= index;
        memmove(self->dates, self->dates + index, (size_t)self->count * sizeof *self->dates);
        memmove(self->free, self->free + index, (size_t)self->count * sizeof *self->free);
    }
    if (self->dates[0] < now)
        self->dates[0] = now;
}

/* ---- running jobs */

/* The first expected end that is not before the date, and not of fewer units. */
static Py_ssize_t end_from(const Plan *self, double date, int units)
{
    Py_ssize_t low = 0, high = self->end_count;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        const End *end = self->ends + middle;
        if (end->date < date || (end->date == date && end->units < units))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static PyObject *plan_hold(Plan *self, PyObject *args)
{
    PyObject *job_id, *end;
    double date;
    Py_ssize_t index;
    int failed, units;
    if (!PyArg_ParseTuple(args, "Odi", &job_id, &date, &units)
        || grow((void **)&self->ends, &self->ends_room, self->end_count, sizeof *self->ends)
        || (end = Py_BuildValue("(di)", date, units)) == NULL)
        return NULL;
    failed = PyDict_SetItem(self->held, job_id, end);
    Py_DECREF(end);
    if (failed)
        return NULL;
    index = end_from(self, date, units);
    memmove(self->ends + index + 1, self->ends + index, (size_t)(self->end_count - index) * sizeof *self->ends);
    self->ends[index] = (End){date, units};
    self->end_count++;
    Py_RETURN_NONE;
}

static int placed(const Plan *self, Py_ssize_t index)
{
    return self->entries[index].placed == self->number;
}

/* Whether jobs that were there in the last pass have no place. */
static int in_part(Plan *self)
{
    while (self->known < self->queued && placed(self, self->known))
        self->known++;
    return self->known < self->fresh;
}

/* Whether the plan is as it would be if it were made again, after a job that was expected to end at the date has ended. */
static int still_holds(Plan *self, double date, double now)
{
    Py_ssize_t index;
    self->on_time = date == now ? self->on_time + 1 : 0;
    if (self->stale || self->late || !self->on_time || (self->end_count && self->ends[0].date < now)
        || (in_part(self) && (self->on_time < STREAK || self->safe_until < now)))
        return 0;
    if (self->soonest < now)
        for (self->soonest = Py_HUGE_VAL, index = 0; index < self->queued; index++)
            if (placed(self, index) && self->entries[index].start < self->soonest)
                self->soonest = self->entries[index].start;
    return self->soonest >= now;
}

static PyObject *plan_release(Plan *self, PyObject *args)
{
    PyObject *job_id, *end;
    double now, date;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "Od", &job_id, &now))
        return NULL;
    end = PyDict_GetItemWithError(self->held, job_id);
    if (end == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_FALSE;
    }
    date = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(end, 0));
    index = end_from(self, date, (int)PyLong_AsLong(PyTuple_GET_ITEM(end, 1)));
    self->end_count--;
    memmove(self->ends + index, self->ends + index + 1, (size_t)(self->end_count - index) * sizeof *self->ends);
    self->stale = !still_holds(self, date, now);
    self->released_at = now;
    if (PyDict_DelItem(self->held, job_id))
        return NULL;
    Py_RETURN_TRUE;
}

/* ---- waiting jobs */

/* The class of a request; -1: an exception. */
static Py_ssize_t class_of(Plan *self, int units, double duration)
{
    PyObject *key = Py_BuildValue("(id)", units, duration), *found;
    Py_ssize_t kind = -1;
    if (key == NULL)
        return -1;
    if ((found = PyDict_GetItemWithError(self->kinds, key)) != NULL)
        kind = PyLong_AsSsize_t(found);
    else if (!PyErr_Occurred() && !grow((void **)&self->classes, &self->classes_room, self->class_count, sizeof *self->classes)
             && (found = PyLong_FromSsize_t(self->class_count)) != NULL) {
        if (!PyDict_SetItem(self->kinds, key, found)) {
            kind = self->class_count++;
            self->classes[kind] = (Class){units, duration, 0.0, 0, self->number - 1, self->pass - 1};
        }
        Py_DECREF(found);
    }
    Py_DECREF(key);
    return kind;
}

/* Most classes have no member any more: begins anew with those that have. */
static int forget_classes(Plan *self)
{
    Py_ssize_t index;
    Class *old = self->classes;
    int failed = 0;
    PyDict_Clear(self->kinds);
    self->classes = NULL;
    self->class_count = self->classes_room = 0;
    for (index = 0; !failed && index < self->queued; index++) {
        const Class *kind = old + self->entries[index].kind;
        Py_ssize_t found = class_of(self, kind->units, kind->duration);
        if ((failed = found < 0) == 0) {
            self->classes[found] = *kind;
            self->entries[index].kind = (unsigned int)found;
        }
    }
    PyMem_Free(old);
    return failed ? -1 : 0;
}

static PyObject *plan_add(Plan *self, PyObject *args)
{
    PyObject *job;
    double duration;
    int units;
    Py_ssize_t kind;
    if (!PyArg_ParseTuple(args, "Oid", &job, &units, &duration)
        || grow((void **)&self->entries, &self->entries_room, self->queued, sizeof *self->entries))
        return NULL;
    if (self->class_count > MOST_UNUSED + 2 * self->queued && forget_classes(self))
        return NULL;
    if ((kind = class_of(self, units, duration)) < 0)
        return NULL;
    self->entries[self->queued++] = (Entry){Py_HUGE_VAL, (unsigned int)kind, self->number - 1, Py_NewRef(job)};
    Py_RETURN_NONE;
}

static PyObject *plan_remove(Plan *self, PyObject *job)
{
    Py_ssize_t index;
    for (index = 0; index < self->queued; index++) {
        if (self->entries[index].job != job)
            continue;
        self->queued--;
        memmove(self->entries + index, self->entries + index + 1, (size_t)(self->queued - index) * sizeof *self->entries);
        self->known -= index < self->known;
        self->fresh -= index < self->fresh;
        Py_DECREF(job);
        Py_RETURN_TRUE;
    }
    Py_RETURN_FALSE;
}

/* ---- the plan */

/* Places a job at the step, and as many neighbours of its class before `end` as fit there. Returns how many; 0: an exception. */
static Py_ssize_t place(Plan *self, Py_ssize_t number, Py_ssize_t end, Py_ssize_t step, Py_ssize_t last)
{
    Entry *entry = self->entries + number;
    const Class *kind = self->classes + entry->kind;
    double start = step == self->count ? Py_HUGE_VAL : self->dates[step];
    Py_ssize_t same = 1, most = end - number;
    if (start < Py_HUGE_VAL && kind->units > 0 && self->free[step] / kind->units < most)
        most = self->free[step] / kind->units;
    while (same < most && entry[same].kind == entry->kind && !placed(self, number + same))
        same++;
    if (start < Py_HUGE_VAL) {
        same = room_in(self, step, last, kind->units, same);
        if (take(self, step, last, start + kind->duration, (int)same * kind->units))
            return 0;
        if (start < self->soonest)
            self->soonest = start;
    }
    for (most = 0; most < same; most++) {
        entry[most].start = start;
        entry[most].placed = self->number;
    }
    return same;
}

/* A walk along the queue, from `known` on. */
typedef struct {
    Py_ssize_t at;          /* all jobs before are placed or were passed over */
    double least;           /* none of those that were passed over starts before */
} Walk;

/* Walks on to the job `end`, and places all on the way that start before the date; with Py_HUGE_VAL all. A candidate that
 * then cannot start by `now` any more ends the walk. Returns 0; 1: so it ended; -1: an exception. */
static int walk_to(Plan *self, Walk *walk, Py_ssize_t end, double until, Class *candidate, double now)
{
    const double needed = until;
    int conflicts = 0;
    if (until > walk->least)
        *walk = (Walk){self->known, Py_HUGE_VAL};
    while (walk->at < end) {
        Class *kind = self->classes + self->entries[walk->at].kind;
        Py_ssize_t step, last = 0, same;
        double start;
        if (placed(self, walk->at)) {
            walk->at++;
            continue;
        }
        if (kind->searched != self->number || kind->from < until) {
            step = earliest(self, kind, until == Py_HUGE_VAL ? self->count : step_from(self, until), &last);
            start = kind->from;
            if (start < until && start + kind->duration > walk->least) {
                /* One that was passed over may be in the way: that is looked at again. */
                until = conflicts++ ? Py_HUGE_VAL : start + kind->duration;
                *walk = (Walk){self->known, Py_HUGE_VAL};
                continue;
            }
            if (start < until || until == Py_HUGE_VAL) {
                if ((same = place(self, walk->at, end, step, last)) == 0)
                    return -1;
                walk->at += same;
                if (candidate != NULL && start < needed) {
                    earliest(self, candidate, step_after(self, now), &last);
                    if (candidate->from > now)
                        return 1;
                }
                continue;
            }
        }
        if (kind->from < walk->least)
            walk->least = kind->from;
        walk->at++;
    }
    return 0;
}

static int place_all(Plan *self)
{
    Walk walk = {self->known, Py_HUGE_VAL};
    return walk_to(self, &walk, self->queued, Py_HUGE_VAL, NULL, 0.0);
}

/* Places the jobs that start by now, and what has to be placed before them. None before `number` does. */
static int decide(Plan *self, Py_ssize_t number, double now)
{
    Walk walk = {self->known, Py_HUGE_VAL};
    Py_ssize_t step, last = 0;
    self->pass++;
    for (; number < self->queued; number++) {
        Class *kind = self->classes + self->entries[number].kind;
        if (kind->blocked == self->pass || placed(self, number))
            continue;
        step = earliest(self, kind, step_after(self, now), &last);
        if (kind->from <= now) {
            switch (walk_to(self, &walk, number, kind->from + kind->duration, kind, now)) {
            case -1:
                return -1;
            case 0:
                step = earliest(self, kind, step_after(self, now), &last);
                if (!place(self, number, self->queued, step, last))
                    return -1;
                continue;
            }
        }
        kind->blocked = self->pass;
    }
    step = step_after(self, now);
    self->safe_until = step < self->count ? self->dates[step] : Py_HUGE_VAL;
    return 0;
}

static int make_again(Plan *self, double now, int free)
{
    Py_ssize_t index;
    self->stale = self->late = 0;
    self->number++;
    self->known = 0;
    self->soonest = Py_HUGE_VAL;
    self->count = 0;
    if (grow_steps(self))
        return -1;
    self->dates[0] = now;
    self->free[0] = free;
    self->count = 1;
    for (index = 0; index < self->end_count; index++) {
        const End *end = self->ends + index;
        if (end->date == Py_HUGE_VAL)
            break;
        free += end->units;
        /* A job that overran its estimate may end any moment: it is taken to end now. */
        if (end->date > self->dates[self->count - 1]) {
            if (grow_steps(self))
                return -1;
            self->dates[self->count++] = end->date;
        }
        self->free[self->count - 1] = free;
    }
    return decide(self, 0, now);
}

/* Goes on with a plan at a later date, and with the jobs that have come since. */
static int go_on(Plan *self, double now)
{
    Py_ssize_t queued = self->queued;
    if (in_part(self) && now >= self->safe_until) {
        int failed;
        self->queued = self->fresh;
        failed = self->on_time >= STREAK ? place_all(self) : decide(self, 0, now);
        self->queued = queued;
        if (failed)
            return -1;
    }
    if (self->fresh == queued)
        return 0;
    forget_before(self, now);
    /* Behind jobs that are not placed yet a job can wait as well, unless it might start now. */
    return in_part(self) ? decide(self, self->fresh, now) : place_all(self);
}

static PyObject *plan_due(Plan *self, PyObject *args)
{
    PyObject *due;
    double now;
    int free;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "di", &now, &free) || (due = PyList_New(0)) == NULL)
        return NULL;
    /* What an expected end leaves as it is holds at that date. */
    self->stale |= self->released_at != now && self->released_at != -Py_HUGE_VAL;
    self->released_at = -Py_HUGE_VAL;
    if (self->stale ? make_again(self, now, free) : go_on(self, now))
        goto failed;
    self->fresh = self->queued;
    if (self->soonest > now)
        return due;
    for (self->soonest = Py_HUGE_VAL, index = 0; index < self->queued; index++) {
        const Entry *entry = self->entries + index;
        if (!placed(self, index))
            continue;
        if (entry->start < self->soonest)
            self->soonest = entry->start;
        if (entry->start < now)
            self->late = 1;
        if (entry->start <= now && PyList_Append(due, entry->job))
            goto failed;
    }
    return due;
failed:
    Py_DECREF(due);
    return NULL;
}

static PyObject *plan_jobs(Plan *self, PyObject *nothing)
{
    Py_ssize_t index;
    PyObject *jobs = PyList_New(self->queued);
    for (index = 0; jobs != NULL && index < self->queued; index++)
        PyList_SET_ITEM(jobs, index, Py_NewRef(self->entries[index].job));
    return jobs;
}

static PyObject *plan_starts(Plan *self, PyObject *nothing)
{
    PyObject *starts;
    Py_ssize_t index;
    if (place_all(self) || (starts = PyDict_New()) == NULL)
        return NULL;
    for (index = 0; index < self->queued; index++) {
        const Entry *entry = self->entries + index;
        PyObject *job_id, *date;
        int failed;
        /* One that will never fit is not placed; its start is of an earlier plan. */
        if (!placed(self, index) || entry->start == Py_HUGE_VAL)
            continue;
        job_id = PyObject_GetAttr(entry->job, text_id);
        date = PyFloat_FromDouble(entry->start);
        failed = job_id == NULL || date == NULL || PyDict_SetItem(starts, job_id, date);
        Py_XDECREF(job_id);
        Py_XDECREF(date);
        if (failed) {
            Py_DECREF(starts);
            return NULL;
        }
    }
    return starts;
}

/* ---- the type */

static int plan_init(Plan *self, PyObject *args, PyObject *named)
{
    if (self->held != NULL)
        return wrong("a plan is initialised once");
    if (PyTuple_GET_SIZE(args) || (named != NULL && PyDict_GET_SIZE(named)))
        return wrong("a plan takes no arguments");
    self->stale = 1;
    self->soonest = self->safe_until = Py_HUGE_VAL;
    self->released_at = -Py_HUGE_VAL;
    if (grow_steps(self) || (self->held = PyDict_New()) == NULL || (self->kinds = PyDict_New()) == NULL)
        return -1;
    self->count = 1;
    self->dates[0] = 0.0;
    self->free[0] = 0;
    return 0;
}

static void plan_dealloc(Plan *self)
{
    Py_ssize_t index;
    for (index = 0; index < self->queued; index++)
        Py_DECREF(self->entries[index].job);
    PyMem_Free(self->entries);
    PyMem_Free(self->dates);
    PyMem_Free(self->free);
    PyMem_Free(self->classes);
    PyMem_Free(self->ends);
    Py_XDECREF(self->held);
    Py_XDECREF(self->kinds);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t plan_length(Plan *self)
{
    return self->queued;
}

static PyObject *plan_running(Plan *self, void *nothing)
{
    return PyLong_FromSsize_t(self->end_count);
}

static PyMethodDef plan_methods[] = {
    {"hold", (PyCFunction)plan_hold, METH_VARARGS, "A job holds units until a date."},
    {"release", (PyCFunction)plan_release, METH_VARARGS, "A job that held units is over."},
    {"add", (PyCFunction)plan_add, METH_VARARGS, "A job waits, behind the others."},
    {"remove", (PyCFunction)plan_remove, METH_O, "A job waits no more."},
    {"due", (PyCFunction)plan_due, METH_VARARGS, "The jobs that are to start by now."},
    {"jobs", (PyCFunction)plan_jobs, METH_NOARGS, "The waiting jobs in order."},
    {"starts", (PyCFunction)plan_starts, METH_NOARGS, "When each waiting job is to start."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef plan_members[] = {
    {"running", (getter)plan_running, NULL, "How many jobs hold units.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PySequenceMethods plan_sequence = {.sq_length = (lenfunc)plan_length};

static PyTypeObject PlanType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pilothouse.policies._reservation_plan.ReservationPlan",
    .tp_basicsize = sizeof(Plan),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "When each waiting job is to start.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)plan_init,
    .tp_dealloc = (destructor)plan_dealloc,
    .tp_methods = plan_methods,
    .tp_getset = plan_members,
    .tp_as_sequence = &plan_sequence,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_reservation_plan", "The reservation plan in C.", -1, NULL, NULL, NULL, NULL, NULL
};

PyMODINIT_FUNC PyInit__reservation_plan(void)
{
    PyObject *self;
    if ((text_id = PyUnicode_InternFromString("id")) == NULL || PyType_Ready(&PlanType) < 0)
        return NULL;
    if ((self = PyModule_Create(&module)) != NULL
        && PyModule_AddObjectRef(self, "ReservationPlan", (PyObject *)&PlanType) < 0)
        Py_CLEAR(self);
    return self;
}
