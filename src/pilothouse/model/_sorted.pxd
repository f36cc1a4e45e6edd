# heapq and bisect for lists of tuples that begin with a float and an int, where no two begin with the same: setup.py lets
# the modules that Cython compiles import these. Items are moved within the list, so no reference is counted.

cdef extern from "Python.h":
    ctypedef struct PyObject
    ctypedef struct PyListObject:
        PyObject **ob_item
    PyObject *PyTuple_GET_ITEM(PyObject *, Py_ssize_t)
    double PyFloat_AS_DOUBLE(PyObject *)
    long long PyLong_AsLongLong(PyObject *)

cdef inline bint before(PyObject *one, PyObject *other) noexcept:
    cdef double first = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(one, 0)), second = PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(other, 0))
    if first != second:
        return first < second
    return PyLong_AsLongLong(PyTuple_GET_ITEM(one, 1)) < PyLong_AsLongLong(PyTuple_GET_ITEM(other, 1))

cdef inline heappush(list heap, tuple entry):
    cdef Py_ssize_t place = len(heap), parent
    cdef PyObject **items
    heap.append(entry)
    items = (<PyListObject *>heap).ob_item
    while place > 0:
        parent = (place - 1) >> 1
        if not before(<PyObject *>entry, items[parent]):
            break
        items[place] = items[parent]
        place = parent
    items[place] = <PyObject *>entry

cdef inline tuple heappop(list heap):
    cdef PyObject **items = (<PyListObject *>heap).ob_item
    cdef Py_ssize_t place = 0, child = 1, last = len(heap) - 1
    cdef PyObject *first
    cdef PyObject *moved
    if last < 0:
        raise IndexError("the heap is empty")
    first, moved = items[0], items[last]
    while child < last:
        if child + 1 < last and before(items[child + 1], items[child]):
            child += 1
        if not before(items[child], moved):
            break
        items[place] = items[child]
        place, child = child, 2 * child + 1
    items[place] = moved
    items[last] = first
    return heap.pop()

cdef inline Py_ssize_t bisect_left(list items, tuple entry, Py_ssize_t low=0):
    cdef Py_ssize_t high = len(items), middle
    cdef PyObject **all = (<PyListObject *>items).ob_item
    if high > low and before(all[high - 1], <PyObject *>entry):
        return high
    while low < high:
        middle = (low + high) >> 1
        if before(all[middle], <PyObject *>entry):
            low = middle + 1
        else:
            high = middle
    return low

cdef inline insort(list items, tuple entry, Py_ssize_t low=0):
    items.insert(bisect_left(items, entry, low), entry)
