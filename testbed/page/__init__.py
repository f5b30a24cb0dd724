"""One HTML page of a run, a study or a wide-area run: everything in one file, which opens from disk without a network.

    numbers   values as text, and where in summary.json they stand
    figures   the plots of a run as SVG inside the page, in the page's colours
    frames    what every link carried and marked over time, from an arm's links.csv
    maps      where nodes and links stand on the map
    content   the parts of a page, by kind of run
    write     the page itself: templates/ and static/ put together

Everything is computed from the files of a run, at any time again, and the same files give the same bytes.
"""
