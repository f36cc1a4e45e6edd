cimport cython

cdef double inf, PRECISION_S, WORK_PRECISION
cdef Py_ssize_t MOST_STEPS_KEPT

cdef class Agenda:
    cdef readonly object now
    cdef list _heap
    cdef long long _number
    cdef set _cancelled

    cpdef at(self, double date, callback, argument=*)
    cpdef first_at(self, double date, callback, argument=*)
    cpdef after(self, double seconds, callback, argument=*)
    cpdef double work_left(self, number, double amount, double rate, double since)
    cpdef cancel(self, number)
    cpdef bint was_cancelled(self, number)
    @cython.locals(top=tuple)
    cpdef double next_date(self)
    @cython.locals(entry=tuple)
    cpdef pop(self)
    @cython.locals(date=double, until=double, entry=tuple)
    cpdef run_next(self, double not_before)
    cpdef run_until(self, double date)

@cython.final
cdef class _Action:
    cdef long long number, place
    cdef double left, rate, next_rate
    cdef Py_ssize_t seen
    cdef object callback, argument

cdef class PlainSteppedAgenda(Agenda):
    cdef list _actions, _alarms, _steps
    cdef dict _works
    cdef object _soon

    @cython.locals(action=_Action)
    cpdef double work_left(self, number, double amount, double rate, double since)
    @cython.locals(number=cython.longlong, action=_Action, now=double)
    cdef _enter(self, double seconds, double left, double rate, double next_rate, long long place, callback, argument)
    cpdef transfer(self, double latency_s, double bandwidth, callback, argument=*)
    @cython.locals(now=double, last_step=double, end=double)
    cpdef bint passes(self, double latency_s, double bandwidth)
    cdef _drop_cancelled(self, list heap)
    @cython.locals(actions=list, alarms=list, cancelled=set, ended=list, near=list, due=tuple, entry=tuple, action=_Action,
                   date=double, step=double, first=double, horizon=double, now=double)
    cpdef list step(self)
    @cython.locals(left=double, rate=double, step=double, steps=list, index=Py_ssize_t)
    cdef _catch_up(self, _Action action)
    @cython.locals(seconds=double)
    cdef bint _reduce(self, _Action action, double step)
    @cython.locals(action=_Action)
    cdef _forget_steps(self)

cpdef long long _place(_Action action)
@cython.locals(first=tuple)
cdef double _first_date(list heap)
cdef double _seconds_left(_Action action)
cdef double _horizon(double date)
