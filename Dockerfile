# A server for a trained model, which is mounted at /model: docs/annexes/serving.md.
FROM python:3.13-slim

# The index of PyTorch's CPU build, which is gigabytes smaller: docs/annexes/serving.md.
ARG PIP_EXTRA_INDEX_URL

WORKDIR /source
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve,sentences,ctranslate2]' && useradd --create-home nmt

USER nmt
WORKDIR /home/nmt
EXPOSE 8000
HEALTHCHECK --start-period=60s --timeout=5s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["nmt", "serve", "/model", "--host", "0.0.0.0", "--port", "8000"]
