# The program, for CPUs, in an image: docker build -t infer . && docker run --rm infer tour
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN make install PREFIX=/opt/gpt2scope

FROM debian:bookworm-slim
COPY --from=build /opt/gpt2scope /usr/local
ENTRYPOINT ["infer"]
