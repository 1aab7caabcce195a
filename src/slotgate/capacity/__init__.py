"""How much memory llama.cpp takes for a model and its settings, read off the model's header."""
