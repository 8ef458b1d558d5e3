"""The placement controller: watches, decides with `kfext.core`, writes."""
