"""What is true: resource arithmetic and the public folds of job, pool, node, quota and checkpoint.

Pure: a fold takes what was and what was recorded, and gives what is. Every service builds its
private picture out of these; nobody may decide here.
"""
