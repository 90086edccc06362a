"""Code that runs beside a replica: the participant, its turns, and programs that run within them."""
