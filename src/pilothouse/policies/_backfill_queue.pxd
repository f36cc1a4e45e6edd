cimport cython

cdef double inf
cdef Py_ssize_t MOST_GONE

cdef double _score(double value)

cdef class PlainBackfillQueue:
    cdef readonly bint aside
    cdef readonly object avoid
    cdef bint _overtaking, _easy, _whole_pass, _heads
    cdef object _reserve_shaped, _reserved
    cdef dict _reservations, _end_of
    cdef set _announced
    cdef list _queue, _by_estimate, _ends, _fresh, _others
    cdef tuple _asked
    cdef double _shadow, _now
    cdef long long _numbers, _extra, _unseen, _free
    cdef Py_ssize_t _gone, _place

    @cython.locals(queue=list, entry=tuple, number=cython.longlong)
    cpdef add(self, job, double score, double estimate, long long units)
    @cython.locals(end=tuple)
    cpdef hold(self, str job_id, double date, long long units)
    @cython.locals(end=tuple)
    cpdef announce_end(self, str job_id, double now)
    @cython.locals(end=tuple)
    cpdef bint ended(self, str job_id)
    @cython.locals(fresh=list)
    cpdef first(self, double now, long long free)
    @cython.locals(entry=tuple, estimate=double, taken=cython.longlong)
    cpdef next(self, long long free)
    @cython.locals(entry=tuple, units=cython.longlong)
    cdef _next_head(self)
    cdef _after_heads(self)
    @cython.locals(now=double, shadow=double, estimate=double, others=list, free=cython.longlong, extra=cython.longlong, units=cython.longlong,
                   head=tuple, entry=tuple, place=Py_ssize_t, in_time=bint)
    cdef _next_other(self)
    @cython.locals(missing=cython.longlong, units=cython.longlong, shadow=double, date=double, end=tuple)
    cdef _reserve(self, head, long long free)
    @cython.locals(end=tuple)
    cdef _release(self, str job_id)
    cdef _clear_gone(self)
    cdef _forget(self, tuple entry)
    cdef _drop_estimate(self, tuple entry)
