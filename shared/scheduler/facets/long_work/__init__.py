"""Long work in an event's row: tokens of attempts (`tokens`), and what becomes of the event (`rules`)."""
