"""The reference cluster's defects, a file a concern: policies with one decision replaced."""
