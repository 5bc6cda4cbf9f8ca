"""Value types that cross stages: fields and tensors, offset ranges and ledger entries, table snapshots.

Pure data: neither pyspark nor torch is imported here, so drivers, executors and tests share it.
"""
