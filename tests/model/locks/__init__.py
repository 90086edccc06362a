"""The model of locks: production's generators, with callers that crash, answers that are lost, and clocks that drift."""
