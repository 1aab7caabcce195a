"""How much memory llama.cpp takes for a model and its settings, computed from the model's header."""
