"""An order system: what an online shop does with the events of its orders, kept right by Holdfast.

``python -m examples.orders --help`` says how to run it; ``make demo`` is its proof. To read it,
begin with `pipeline`, which is the whole job on one page; the functions are in `dedup`, `tracking`,
`statistics`, `inventory` and `batch_sink`, what they pass on in `events`. `shop` makes the events,
`reference` computes from them what must come out, and `verify` compares.
"""
