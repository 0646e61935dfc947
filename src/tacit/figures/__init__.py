"""The papers' figures, drawn from scratch."""
