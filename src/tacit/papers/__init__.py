"""One module per paper: its named algorithms as compositions, its figures as functions."""
