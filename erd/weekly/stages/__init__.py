"""The stages, one a file; erd/weekly/chain.py has their order. No imports here: who trains needs no matplotlib."""
