cimport cython

cdef double inf

cdef class Agenda:
    cdef public object now
    cdef list _heap
    cdef long long _number
    cdef set _cancelled

    cpdef at(self, double date, callback, argument=*)
    cpdef first_at(self, double date, callback, argument=*)
    cpdef after(self, double seconds, callback, argument=*)
    cpdef bint was_cancelled(self, number)
    @cython.locals(top=tuple)
    cpdef double next_date(self)
    @cython.locals(entry=tuple)
    cpdef pop(self)
    @cython.locals(date=double, until=double, entry=tuple)
    cpdef run_next(self, double not_before)
    cpdef run_until(self, double date)
