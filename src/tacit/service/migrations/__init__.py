"""How a party's tables came to be what they are, step by step."""
