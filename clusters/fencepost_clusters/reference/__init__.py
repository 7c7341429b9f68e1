"""The reference cluster: the seed documents, implemented. wire <- core <- shell; see README.md."""
