"""A formal model of replication, whose behaviours judge the rules.

A test of a rule is written by whoever wrote the rule, and has the mistakes that its author thought
of. `Replication.tla` is a model of one partition. TLC walks through it at random, and the model
itself says in each state whether something committed is lost (`tlc`, `behaviours`). Each walk
becomes a history, as the nodes of the reference cluster would write it (`histories`). Of the model
as it is, no rule may accuse anybody. Of a variant that leaves one check out (`variants`), some rule
must notice each loss (`judged`).
"""
