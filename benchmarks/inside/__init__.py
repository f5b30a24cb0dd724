"""What runs where the packets are: programs in the guest, and one in network namespaces of this machine's own kernel.

The guest has no wall clock. Its programs make empty files in the folder that the host lends them, `Folder.mark`, and
the host's kernel stamps each with its own time, to a few milliseconds. (A line to the launcher would be stamped when
the launcher next runs: on a busy machine a tenth of a second later.)
"""
