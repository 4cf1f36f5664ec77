"""The word count from files of words, in columns: Holdfast beside Pathway.

Both read the same text files, a word per line, and count each word. For every batch of the input
they emit the old and the new count of each word in it, which is what Pathway does by nature.
"""
