"""Properties that features keep in the row of an event, or beside it: a file for each, with their names, codes and meaning.

attempts       the history of delivery attempts, and the heads of receivers' answers
late_reasons   why the event was late, in parts
overlap        occurrences of schedules that do not overlap
owed           what is still to be done after the event has ended
receipts       which requests have changed the event, so that one that was overtaken finds that out
work_rows      the work of a receiver that completes the event later
"""
