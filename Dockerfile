# Dependencies first: a change of kfext's own code rebuilds the last layer only. Name the base image by
# the digest that your registry has (`FROM python:3.11-slim@sha256:…`) where builds must be repeatable.
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
RUN pip install --no-cache-dir --require-hashes --only-binary=:all: --prefix /made/dependencies --requirement requirements.lock
RUN pip install --no-cache-dir --require-hashes --only-binary=:all: --requirement requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY kfext ./kfext
RUN pip install --no-cache-dir --no-deps --no-build-isolation --prefix /made/kfext .

# The agent gives it to the containers of jobs, which may have no shell. Its licence: NOTICE.
FROM debian:12-slim AS static
RUN apt-get update && apt-get install --yes --no-install-recommends busybox-static

FROM python:3.11-slim
COPY --from=static /bin/busybox /usr/local/bin/busybox
COPY --from=static /usr/share/doc/busybox-static/copyright /usr/share/doc/busybox-static/copyright
COPY NOTICE /usr/share/doc/kfext/NOTICE
COPY --from=build /made/dependencies /usr/local
COPY --from=build /made/kfext /usr/local
ENV PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["kfext"]
