import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.zip.CRC32;

/**
 * A service with its records: nine tenths are the same in all services, the last tenth is its own.
 * It makes garbage, collects it, and answers each line with a digest of the records.
 */
class Service {
    private static final Map<String, byte[]> RECORDS = new TreeMap<>();

    public static void main(String[] words) throws IOException {
        int number = Integer.parseInt(words[0]);
        int count = Integer.parseInt(words[1]);
        Random alike = new Random(7);
        Random own = new Random(100 + number);
        for (int at = 0; at < count; at++) {
            byte[] record = new byte[1000];
            (at < count * 9 / 10 ? alike : own).nextBytes(record);
            RECORDS.put("record-" + at, record);
        }
        int garbage = 0;
        for (byte[] record : RECORDS.values()) {
            garbage += record.clone().length;
        }
        System.gc();
        System.out.println("worked " + garbage);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            System.out.println("digest " + digest());
        }
    }

    private static long digest() {
        CRC32 crc = new CRC32();
        RECORDS.values().forEach(crc::update);
        return crc.getValue();
    }
}
