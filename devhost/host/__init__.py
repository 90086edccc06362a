"""The Functions host, as far as the app needs it: functions are indexed, and HTTP, queue and timer triggers invoke them."""
