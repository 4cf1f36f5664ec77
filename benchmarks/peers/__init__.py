"""The same work on other systems, each written as its own users would write it.

Every module is a program that runs in the virtual environment of its system; none of them
imports Holdfast, and nothing imports them.
"""
