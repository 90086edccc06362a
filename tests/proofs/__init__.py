"""Proofs with certificates: what is explored, hunted and simulated exhaustively is computed once for each state of the code.

A proof is a file `prove_*.py` below tests/, or one of the parts that its `PARTS` splits it into. `make prove` runs each proof that is
stale in a process of its own, and writes its certificate into tests/proved/. `make test` only compares the certificates with the code.

    catalogue     the proofs that there are
    facts         `note`, by which a proof records bounds, seeds, states and what caught a mutant
    trees         hashes of modules: their syntax trees without docstrings and comments
    certificate   a certificate's content, its file, and the reason why it is stale
    running       one proof, in this process: `python -m tests.proofs.running NAME FILE`
    proving       several proofs, each in its process, side by side
    __main__      the command: `python -m tests.proofs --help`
"""
