# The whole service in one process, for trying it and for development; for production see docs/how-to/container.md.
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
RUN devhost/wheel.sh

FROM python:3.13-slim
COPY --from=build /src/dist/ /tmp/dist/
RUN pip install --no-cache-dir "$(ls /tmp/dist/tocsin-*.whl)[dev]" \
    && rm -r /tmp/dist \
    && useradd --create-home tocsin \
    && install -d -o tocsin -m 700 /data
USER tocsin
VOLUME /data
EXPOSE 7071
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://localhost:7071/api/readyz')"]
# Other machines reach the port, so it needs keys of your own: TOCSIN_ADMIN_KEY, TOCSIN_SIGNING_KEY and TOCSIN_KEY.
ENTRYPOINT ["tocsin", "dev", "--host", "0.0.0.0", "--data", "/data"]
