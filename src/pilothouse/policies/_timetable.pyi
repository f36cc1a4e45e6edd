from pilothouse.policies.conservative import PlainTimetable

Timetable = PlainTimetable
