# Dependencies first: a change of kfext's own code rebuilds the last layer only.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY kfext ./kfext
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
COPY pyproject.toml /tmp/pyproject.toml
RUN python -c "import tomllib; print(*tomllib.load(open('/tmp/pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > /tmp/requirements.txt \
 && pip install --no-cache-dir --requirement /tmp/requirements.txt \
 && rm /tmp/pyproject.toml /tmp/requirements.txt
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl && rm -r /wheels
ENV PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["kfext"]
