"""The reference cluster, which implements the seed documents. wire <- core <- shell; see
README.md."""
