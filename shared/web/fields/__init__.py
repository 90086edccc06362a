"""Field types of requests and answers, and the texts of their errors."""
