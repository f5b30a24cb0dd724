# Orrery in a container without any privilege: the kernel that packets run through is an ordinary process in it.
#
#   docker build -t orrery .                                        # installs everything, builds the guest kernel: minutes
#   docker run --rm orrery                                          # the smoke scenario, as an ordinary user
#   mkdir -p results && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD/results:/orrery/results" orrery run two-jobs
#
# The results folder must be there, and the container's user must be its owner: Docker makes one that is missing, for root.
# No --privileged, no --cap-add, no device. The 64 MB of a container's /dev/shm are not used: a guest's memory then lies in /tmp.
ARG DEBIAN=bookworm
FROM debian:${DEBIAN}-slim

RUN apt-get update \
 && apt-get install -y --no-install-recommends make util-linux \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 orrery
WORKDIR /orrery

# The Debian packages alone, so that another version of the sources needs no new ones.
COPY scripts/packages scripts/packages
RUN scripts/packages && rm -rf /var/lib/apt/lists/*

COPY --chown=orrery . .
# Outside of anybody's home, so that whoever is given with --user finds the kernel, and the plots' fonts.
ENV ORRERY_CACHE=/var/cache/orrery MPLCONFIGDIR=/var/cache/orrery/matplotlib
RUN install -d -o orrery -g orrery /orrery $ORRERY_CACHE && install -d -m 1777 $MPLCONFIGDIR
# The kernel's sources come from Debian's archive: its index is needed once more, to be thrown away in the same layer.
RUN apt-get update \
 && setpriv --reuid=orrery --regid=orrery --clear-groups env HOME=/home/orrery \
    sh -c 'scripts/setup && .venv/bin/python -c "import matplotlib.font_manager"' \
 && rm -rf /var/lib/apt/lists/*

USER orrery
ENTRYPOINT [".venv/bin/python", "-m", "testbed"]
CMD ["run", "smoke"]
