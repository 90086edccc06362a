"""Field types of requests and answers, and the words of their errors."""
